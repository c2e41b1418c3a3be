"""generate through the built program, without torch: prompts of text, stops, streams, mistakes."""

import json
import os
import pty
import signal
import subprocess
import time

import pytest


@pytest.fixture(scope="module")
def model(bmojo, tmp_path_factory):
    """A model of bytes: 257 ids and no tokenizer file."""
    folder = tmp_path_factory.mktemp("generate") / "model"
    sets = ["vocab_size=257", "window=8", "fading_tokens=3", "eidetic_tokens=5"]
    bmojo("init", "--preset", "bmojo-tiny", *[f for s in sets for f in ("--set", s)],
          "--seed", "1", "--out", folder)  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def generate(bmojo, model):
    def run(*flags, prompt="The ", **more):
        given = ["--prompt", prompt] if prompt is not None else []
        return json.loads(bmojo("generate", "--model", model, *given, "--json", *flags, **more))

    return run


def test_text_is_what_the_ids_stand_for(bmojo, model, generate):
    result = generate("--max-tokens", "40", "--ignore-eos", "--seed", "3")
    text = bytes(i for i in result["ids"] if i < 256).decode("utf-8", errors="replace")
    assert result["text"] == text and result["prompt_tokens"] == 4
    plain = bmojo("generate", "--model", model, "--prompt", "The ", "--max-tokens", "40",
                  "--ignore-eos", "--seed", "3")  # fmt: skip
    assert plain == text + "\n"
    by_ids = generate("--ids", ",".join(map(str, b"The ")), "--max-tokens", "40", "--ignore-eos",
                      "--seed", "3", prompt=None)  # fmt: skip
    assert by_ids["ids"] == result["ids"]


def test_prompt_from_a_file_and_from_standard_input(generate, tmp_path):
    path = tmp_path / "prompt.txt"
    path.write_text("The ")
    wanted = generate("--seed", "2")
    assert generate("--prompt-file", path, "--seed", "2", prompt=None) == wanted
    assert generate("--prompt-file", "-", "--seed", "2", prompt=None, input=b"The ") == wanted


@pytest.mark.parametrize("flags, env", [(["--threads", "1"], {}), (["--threads", "2"], {}),
                                        ([], {"BMOJO_SIMD": "AVX2"})])  # fmt: skip
def test_the_same_seed_gives_the_same_text_everywhere(generate, flags, env):
    assert generate("--seed", "7", *flags, env={**os.environ, **env}) == generate("--seed", "7")


def test_a_stop_text_ends_it_and_is_cut_off(generate):
    whole = generate("--max-tokens", "60", "--ignore-eos", "--seed", "5")
    text = whole["text"]
    for length in (1, 2, 5):
        stop = text[20 : 20 + length]
        result = generate("--max-tokens", "60", "--ignore-eos", "--seed", "5", "--stop", stop)
        assert result["finish"] == "stop"
        assert result["text"] == text[: text.index(stop)]
        assert result["ids"] == whole["ids"][: len(result["ids"])]
    either = generate("--max-tokens", "60", "--ignore-eos", "--seed", "5", "--stop", "never there",
                      "--stop", text[30:33])  # fmt: skip
    assert either["text"] == text[: text.index(text[30:33])]


def test_a_saved_text_goes_on_as_if_it_had_never_stopped(generate, tmp_path):
    flags = ["--ignore-eos", "--repetition-penalty", "1.2", "--stop", "never there"]
    whole = generate("--max-tokens", "60", "--seed", "9", *flags)
    for first in (1, 7, 30):
        state = tmp_path / f"state-{first}"
        begun = generate("--max-tokens", first, "--seed", "9", "--state-out", state, *flags)
        rest = generate("--max-tokens", 60 - first, "--state-in", state, *flags, prompt=None)
        assert begun["ids"] + rest["ids"] == whole["ids"]
        assert begun["logprobs"] + rest["logprobs"] == whole["logprobs"]
        assert begun["text"] + rest["text"] == whole["text"]
        assert rest["prompt_tokens"] == rest["reprocessed_tokens"] == 0
    longer = generate("--state-in", tmp_path / "state-30", *flags, prompt=" and then")
    assert longer["prompt_tokens"] == 9 and longer["reprocessed_tokens"] == 0


def test_a_stop_text_is_found_across_a_state(generate, tmp_path):
    """The text is saved before the stop and within it."""
    whole = generate("--max-tokens", "200", "--ignore-eos", "--seed", "5")
    ids = whole["ids"]
    start = next(k for k in range(10, 200) if all(48 < i < 127 for i in ids[k : k + 3]))
    stop = bytes(ids[start : start + 3]).decode()
    before = whole["text"][: whole["text"].index(stop)]
    flags = ["--ignore-eos", "--stop", stop]
    begun = {}
    for first in range(start - 2, start + 3):
        state = tmp_path / f"state-{first}"
        begun[first] = generate("--max-tokens", first, "--seed", "5", "--state-out", state, *flags)
        rest = generate("--max-tokens", 200 - first, "--state-in", state, *flags, prompt=None)
        assert begun[first]["finish"] == "length" and rest["finish"] == "stop"
        assert begun[first]["text"] + rest["text"] == before
    # What may belong to the stop is held back.
    assert begun[start + 1]["text"] == begun[start + 2]["text"] == before


def test_states_of_others_are_refused(bmojo, model, generate, tmp_path):
    state = tmp_path / "state"
    generate("--state-out", state)
    bmojo("init", "--preset", "bmojo-tiny", "--set", "vocab_size=257", "--seed", "2", "--out",
          tmp_path / "other")  # fmt: skip
    go_on = ["generate", "--model", model, "--state-in", state]
    other = bmojo("generate", "--model", tmp_path / "other", "--state-in", state, code=2)
    assert "must be a state of this model" in other
    assert "eidetic_tokens must be 4" in bmojo(*go_on, "--set", "eidetic_tokens=4", code=2)
    state.write_bytes(state.read_bytes()[:-1])
    assert "cut short or damaged" in bmojo(*go_on, code=2)


def test_what_was_held_back_stands_before_a_new_prompt(bmojo, model, tmp_path):
    """A state that ends within a character, and goes on with a prompt behind it."""
    state = tmp_path / "state"
    bmojo("generate", "--model", model, "--prompt", "a", "--max-tokens", "40", "--ignore-eos",
          "--seed", "3", "--state-out", state)  # fmt: skip
    flags = ["--max-tokens", "20", "--ignore-eos", "--json", "--seed", "1"]
    run = json.loads(bmojo("generate", "--model", model, "--state-in", state, "--prompt", "b", *flags))
    text = bytes(i for i in run["ids"] if i < 256).decode("utf-8", errors="replace")
    assert run["text"] == text


def test_samples_fork_one_prompt(bmojo, model, generate):
    run = bmojo("generate", "--model", model, "--prompt", "The ", "--num-samples", "3", "--seed",
                "4", "--json")  # fmt: skip
    samples = [json.loads(line) for line in run.splitlines()]
    assert samples == [generate("--seed", str(4 + i)) for i in range(3)]
    assert all(sample["reprocessed_tokens"] == 0 for sample in samples)


def test_the_likeliest_are_told(generate):
    result = generate("--temperature", "0", "--logprobs", "3", "--max-tokens", "5", "--ignore-eos")
    assert len(result["top_logprobs"]) == 5
    for id, logprob, row in zip(result["ids"], result["logprobs"], result["top_logprobs"]):
        assert len(row) == 3 and row[0] == {"id": id, "logprob": logprob}
        assert row[0]["logprob"] >= row[1]["logprob"] >= row[2]["logprob"]


def test_a_penalty_makes_repetition_rarer(generate):
    flags = ["--temperature", "0", "--max-tokens", "60", "--ignore-eos"]
    plain = generate(*flags)["ids"]
    spread = generate(*flags, "--repetition-penalty", "50")["ids"]
    assert len(set(spread)) > len(set(plain))


def read_terminal(master):
    try:
        return os.read(master, 4096)
    except OSError:  # the other side is closed
        return b""


def on_a_terminal(bmojo, model, count):
    """(process, its terminal) of a text of so many tokens."""
    master, slave = pty.openpty()
    process = subprocess.Popen([bmojo.path, "generate", "--model", model, "--prompt", "The ",
                                "--max-tokens", str(count), "--ignore-eos", "--seed", "3"],
                               stdout=slave, stderr=slave, stdin=subprocess.DEVNULL,
                               env={**os.environ, "TERM": "xterm"})  # fmt: skip
    os.close(slave)
    return process, master


def test_a_terminal_gets_a_closing_line(bmojo, model):
    process, master = on_a_terminal(bmojo, model, 20)
    shown = b"".join(iter(lambda: read_terminal(master), b""))
    os.close(master)
    assert process.wait() == 0
    *text, last = shown.decode(errors="replace").strip().splitlines()
    assert text
    assert "4 tokens read at" in last and "20 written at" in last and "of memory" in last


def test_a_terminal_sees_text_as_it_comes(bmojo, model):
    """Whoever reads the first of it and interrupts does not get the rest. A terminal holds a few
    kilobytes that nobody reads, then the program waits: it cannot be done before the signal."""
    count = 200_000
    process, master = on_a_terminal(bmojo, model, count)
    shown = read_terminal(master)
    assert shown and process.poll() is None
    process.send_signal(signal.SIGINT)
    shown += b"".join(iter(lambda: read_terminal(master), b""))
    os.close(master)
    assert process.wait() == 130 and len(shown) < count / 2


def interrupted(bmojo, model, state, *flags, writes=False):
    """Of a call that takes long, in the midst of its work: before that there is nothing to keep."""
    for seconds in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20):
        process = subprocess.Popen([bmojo.path, "generate", "--model", model, "--state-out", state,
                                    *map(str, flags)], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)  # fmt: skip
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
        if state.exists() and (out or not writes):
            assert process.returncode == 130
            return out, err
    raise AssertionError(f"nothing was kept: {err}")


def test_interrupted_while_it_reads_it_keeps_what_was_read(bmojo, model, generate, tmp_path):
    prompt, state = tmp_path / "prompt", tmp_path / "state"
    prompt.write_bytes(bytes(7 * i % 251 for i in range(4_000_000)))
    out, err = interrupted(bmojo, model, state, "--prompt-file", prompt)
    count = json.loads(bmojo("inspect", state, "--json"))["position"]
    assert 0 < count < 4_000_000 and f"{state}: holds {count:,} of 4,000,000 tokens of the prompt" in err
    assert out == ""
    head = prompt.read_bytes()[:count]
    # What is recent counts, too.
    more = ["--max-tokens", "40", "--ignore-eos", "--temperature", "0", "--repetition-penalty", "5"]
    for rest in (b"", b"AB"):
        (tmp_path / "whole").write_bytes(head + rest)
        ids = ["--ids", ",".join(map(str, rest))] if rest else []
        went_on = generate("--state-in", state, *ids, *more, prompt=None)
        whole = generate("--prompt-file", tmp_path / "whole", *more, prompt=None)
        assert (went_on["ids"], went_on["logprobs"]) == (whole["ids"], whole["logprobs"])
        assert went_on["reprocessed_tokens"] == 0


def test_interrupted_while_it_writes_it_keeps_its_state(bmojo, model, generate, tmp_path):
    state, flags = tmp_path / "state", ["--ignore-eos", "--seed", "3"]
    out, _ = interrupted(bmojo, model, state, "--prompt", "The ", "--max-tokens", 10_000_000,
                         "--json", *flags, writes=True)  # fmt: skip
    ids = json.loads(out)["ids"]
    went_on = generate("--state-in", state, "--max-tokens", "5", "--ignore-eos", prompt=None)
    whole = generate("--max-tokens", len(ids) + 5, *flags)
    assert ids + went_on["ids"] == whole["ids"]


@pytest.mark.parametrize("arguments, says", [
    ([], "generate: --prompt, --prompt-file or --ids is needed, got none"),
    (["--prompt", "a", "--ids", "1"], "is needed, got more than one"),
    (["--prompt", ""], "--prompt: must hold at least one character, got none"),
    (["--prompt-file", "/no/such"], "/no/such: cannot be read"),
    (["--ids", "257"], "ids must be from 0 to 256, got 257"),
    (["--prompt", "a", "--stop", ""], "--stop"),
    (["--state-in", "/no/such"], "/no/such"),
    (["--prompt", "a", "--state-out", "x", "--num-samples", "2"],
     "--state-out: keeps one continuation, got --num-samples 2"),
    (["--prompt", "a", "--repetition-penalty", "0"], "--repetition-penalty: must be from 0.01"),
    (["--prompt", "a", "--dtype", "f16"], "--dtype"),
    (["--prompt", "a", "--tokenizer", "/no/such"], "/no/such"),
    (["--ids", "1,-1"], "ids must be from 0 to 256, got -1"),
    (["--ids", ""], "--ids: must be whole numbers like 1,2,3, got ''"),
    (["--ids", "1,,2"], "--ids: must be whole numbers like 1,2,3, got '1,,2'"),
    (["--ids", "99999999999999999999"], "--ids: must be whole numbers like 1,2,3, got"),
    (["--prompt-file", "/"], "/: must be a regular file, got a folder"),
    (["--ids", "1", "--temperature", "-1"], "--temperature: must be from 0 to 1000000, got -1"),
    (["--ids", "1", "--temperature", "nan"], "--temperature: must be a number, got 'nan'"),
    (["--ids", "1", "--temperature", "inf"], "--temperature: must be from 0 to 1000000, got inf"),
    (["--ids", "1", "--top-k", "-1"], "--top-k: must be from 0 to"),
    (["--ids", "1", "--top-k", "1.5"], "--top-k: must be a whole number in digits, got '1.5'"),
    (["--ids", "1", "--top-p", "1.5"], "--top-p: must be from 0 to 1, got 1.5"),
    (["--ids", "1", "--min-p", "-0.1"], "--min-p: must be from 0 to 1, got -0.1"),
    (["--ids", "1", "--repetition-penalty", "101"], "must be from 0.01 to 100, got 101"),
    (["--ids", "1", "--max-tokens", "0"], "--max-tokens: must be from 1 to"),
    (["--ids", "1", "--num-samples", "0"], "--num-samples: must be from 1 to"),
    (["--ids", "1", "--logprobs", "-1"], "--logprobs: must be from 0 to"),
    (["--ids", "1", "--seed", "-1"], "--seed: must be from 0 to"),
])
def test_wrong_arguments(bmojo, model, arguments, says):
    assert says in bmojo("generate", "--model", model, *arguments, code=2)


def test_wrong_prompt_files(bmojo, pieces, tmp_path):
    """Of a model of bytes every file is a prompt; others read UTF-8."""
    model = tmp_path / "model"
    bmojo("init", "--preset", "bmojo-tiny", "--set", "vocab_size=200", "--out", model)
    flags = ["generate", "--model", model, "--tokenizer", pieces / "tokenizer.model",
             "--prompt-file"]  # fmt: skip
    (tmp_path / "bad").write_bytes(b"word\xff\xfe")
    says = "--prompt-file: must be UTF-8, got other bytes at 4"
    assert says in bmojo(*flags, tmp_path / "bad", code=2)
    assert says in bmojo(*flags, "-", code=2, input=b"word\xff\xfe")
    (tmp_path / "empty").write_bytes(b"")
    says = "--prompt-file: must hold at least one character, got none"
    assert says in bmojo(*flags, tmp_path / "empty", code=2)
    assert says in bmojo(*flags, "-", code=2, input=b"")


def test_a_checkpoint_cut_at_any_place_is_refused(bmojo, model, tmp_path):
    raw = (model / "model.safetensors").read_bytes()
    cut = tmp_path / "cut"
    cut.mkdir()
    (cut / "config.json").write_bytes((model / "config.json").read_bytes())
    header = 8 + int.from_bytes(raw[:8], "little")
    for size in (0, 5, 8, 100, header - 1, header, header + 1, len(raw) // 2, len(raw) - 1):
        (cut / "model.safetensors").write_bytes(raw[:size])
        for verb in (["generate", "--ids", "1"], ["bench", "--prompt", "1"]):
            message = bmojo(*verb, "--model", cut, code=2)
            assert "model.safetensors: " in message and ("cut off" in message or "at least 8" in message)


@pytest.mark.parametrize("line, says", [
    ('{"ids": [1, 257]}', "-:1: ids must be from 0 to 256, got 257"),
    ('{"ids": [-1]}', "-:1: ids must be from 0 to 256, got -1"),
    ('{"ids": []}', "-:1: ids must hold at least one id, got none"),
    ('{"ids": [1]}\n{"ids": "a"}', '-:2: must be {"ids": [..]}, got {"ids":"a"}'),
    ("", "-: must hold at least one line, got none"),
])  # fmt: skip
def test_wrong_ids_of_score(bmojo, model, line, says):
    assert says in bmojo("score", "--model", model, "--ids", "-", code=2, input=line.encode())


def test_a_prompt_needs_a_tokenizer(bmojo, tmp_path):
    bmojo("init", "--preset", "bmojo-tiny", "--set", "vocab_size=50", "--out", tmp_path / "model")
    says = "--prompt: needs a tokenizer, got none in the model's folder; give --tokenizer or --ids"
    assert says in bmojo("generate", "--model", tmp_path / "model", "--prompt", "a", code=2)
    says = "--tokenizer: vocabulary must be at most the model's = 50, got 257"
    assert says in bmojo("generate", "--model", tmp_path / "model", "--prompt", "a", "--tokenizer",
                         "bytes", code=2)  # fmt: skip


def test_half_precision_weights(bmojo, model, tmp_path):
    """A file in bf16 is read as it is or widened: the same numbers, so the same text."""
    bmojo("export", model, "--out", tmp_path / "half", "--dtype", "bf16")
    flags = ["generate", "--model", tmp_path / "half", "--prompt", "The ", "--json", "--seed", "1"]
    assert bmojo(*flags) == bmojo(*flags, "--dtype", "f32")
    score = ["score", "--model", model, "--ids", "-"]
    wide, half = (json.loads(bmojo(*score, *more, input=b'{"ids": [1, 2, 3, 4]}'))
                  for more in ([], ["--dtype", "bf16"]))  # fmt: skip
    assert wide != half and half["logprobs"][1:] == pytest.approx(wide["logprobs"][1:], abs=0.1)


def test_bench_measures_reading_and_writing(bmojo, model):
    run = bmojo("bench", "--model", model, "--prompt", "20", "--tokens", "5", "--depth", "0,30",
                "--batch", "2", "--json")  # fmt: skip
    rows = [json.loads(line) for line in run.splitlines()]
    assert [(r["phase"], r["depth"]) for r in rows] == [
        ("prefill", 0), ("decode", 20), ("prefill", 30), ("decode", 50)]  # fmt: skip
    assert all(r["tokens_per_second"] > 0 and r["batch"] == 2 and r["peak_rss_bytes"] > 0 for r in rows)
    fresh = bmojo("bench", "--preset", "bmojo-tiny", "--set", "vocab_size=100", "--prompt", "4",
                  "--tokens", "2")  # fmt: skip
    assert fresh.startswith("prefill") and len(fresh.splitlines()) == 2


def test_bench_writes_at_every_depth_by_turns(bmojo, model):
    run = bmojo("bench", "--model", model, "--prompt", "20", "--tokens", "5", "--depth", "0,30",
                "--repeat", "3", "--json")  # fmt: skip
    rows = [json.loads(line) for line in run.splitlines()]
    first = [("prefill", 0), ("decode", 20), ("prefill", 30), ("decode", 50)]
    again = [("decode", 26), ("decode", 56), ("decode", 32), ("decode", 62)]
    assert [(r["phase"], r["depth"]) for r in rows] == first + again


@pytest.mark.parametrize("arguments, says", [
    ([], "--preset"),
    (["--model", "MODEL", "--repeat", "0"], "--repeat"),
    (["--preset", "bmojo-tiny", "--model", "MODEL"], "--model cannot be given with"),
    (["--model", "MODEL", "--depth", "-1"], "--depth: must be 0 or more, got -1"),
    (["--model", "MODEL", "--tokens", "0"], "--tokens"),
])
def test_wrong_arguments_of_bench(bmojo, model, arguments, says):
    filled = [model if a == "MODEL" else a for a in arguments]
    assert says in bmojo("bench", *filled, code=2)
