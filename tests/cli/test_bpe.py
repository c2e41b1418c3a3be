"""Byte-level BPE through `bmojo tokenize`: small tokenizers of each kind against Python's."""

import itertools
import json
import random
import subprocess

import pytest
from bpe_texts import (
    ROOT, assert_ids_are_pythons, encoded, every_character, fuzzed_text, ids_of, oracle_of,
    wild_text,
)  # fmt: skip
from conftest import listing
from test_tokenize import mixed_text
from tokenizers import (
    AddedToken, ByteLevelBPETokenizer, Regex, Tokenizer, decoders, models, normalizers,
    pre_tokenizers, processors, trainers,
)  # fmt: skip

END = "<|endoftext|>"
LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
KINDS = ["gpt2", "neox", "smollm2", "llama3"]


def training_lines():
    """Of texts that stay as they are: what tests find in a tokenizer must not change with a page."""
    lines = (ROOT / "LICENSE").read_text().splitlines(keepends=True)
    return lines + [mixed_text(2000, i).decode(errors="replace") for i in range(40)]


def trained(kind):
    tokenizer = Tokenizer(models.BPE(ignore_merges=kind == "llama3"))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind != "llama3")
    tokenizer.pre_tokenizer = byte_level
    tokenizer.decoder = decoders.ByteLevel()
    if kind == "neox":
        tokenizer.normalizer = normalizers.NFC()
    if kind == "smollm2":
        digits = pre_tokenizers.Digits(individual_digits=True)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    if kind == "llama3":
        split = pre_tokenizers.Split(Regex(LLAMA3_PATTERN), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    special = ["<|end_of_text|>", "<|begin_of_text|>"] if kind == "llama3" else [END, "<|im_start|>"]
    trainer = trainers.BpeTrainer(vocab_size=1200, special_tokens=special, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())  # fmt: skip
    tokenizer.train_from_iterator(training_lines(), trainer)
    if kind == "neox":
        tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
        # Looked for in normalised text: the first is found as e and a mark too, the last never.
        tokenizer.add_tokens([AddedToken("é!", normalized=True), AddedToken("\u212b?"),
                              AddedToken("e\u0301?", normalized=False)])  # fmt: skip
        tokenizer.add_tokens(["ab", "abc", "bcd"])
    if kind == "llama3":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 1)])  # fmt: skip
    return tokenizer


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """By kind: a small tokenizer.json."""
    files = {}
    for kind in KINDS:
        files[kind] = tmp_path_factory.mktemp(kind) / "tokenizer.json"
        trained(kind).save(str(files[kind]))
    return files


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_those_of_python(bmojo, small, tmp_path, kind):
    texts = [mixed_text(150_000, 1), mixed_text(40_000, 2, breaks=False), b" " * 20_000 + b"x",
             b"\n" * 30_000, b"\n", b"\xff", b"\0", random.Random(1).randbytes(30_000),
             b"a" * 50_000, wild_text(50_000, 3).encode()]  # fmt: skip
    assert_ids_are_pythons(bmojo, small[kind], texts, tmp_path / "files")
    draw = random.Random(4)
    lines = [fuzzed_text(draw) for _ in range(8000)]
    lines += ["éé! e\u0301! e\u0301? Å? \u212b? A\u030a?", "abcd xabcx bcd abab", "e\u0301\u0301!"]
    assert_ids_are_pythons(bmojo, small[kind], lines, tmp_path / "lines")


def test_every_character_is_classified_as_python_does(bmojo, small, tmp_path):
    texts = list(every_character())[::40]
    for kind in ("neox", "llama3"):
        assert_ids_are_pythons(bmojo, small[kind], texts, tmp_path / kind)


def test_cuts_and_threads_change_nothing(bmojo, small, tmp_path):
    text = [mixed_text(2_300_000, 5)]  # parts are of 1 MB
    for kind in ("neox", "llama3"):
        assert_ids_are_pythons(bmojo, small[kind], text, tmp_path / kind)
        for threads in (2, 3):
            encoded(bmojo, small[kind], text, tmp_path / f"{kind}{threads}", threads=threads)
            shards = [tmp_path / name / "out/shard-00000.tokens" for name in (kind, f"{kind}{threads}")]
            assert shards[0].read_bytes() == shards[1].read_bytes()


def test_the_documented_line_trains_a_tokenizer(bmojo, tmp_path):
    page = (ROOT / "docs/shards.md").read_text()
    line = next(line for line in page.splitlines() if "ByteLevelBPETokenizer" in line)
    (tmp_path / "books.txt").write_text("".join(training_lines()))
    code = line.strip().removeprefix("python3 -c \"").removesuffix("\"")
    code = code.replace("books.txt", str(tmp_path / "books.txt"))
    exec(code.replace("'tokenizer.json'", repr(str(tmp_path / "tokenizer.json"))))
    assert ByteLevelBPETokenizer  # what the line imports
    assert oracle_of(tmp_path / "tokenizer.json").get_vocab_size() <= 4096
    assert_ids_are_pythons(bmojo, tmp_path / "tokenizer.json", [mixed_text(50_000, 1)], tmp_path / "x")


def test_vocabulary_and_merges_in_two_files(bmojo, small, tmp_path):
    model = json.loads(small["gpt2"].read_text())["model"]
    (tmp_path / "gpt2").mkdir()
    vocab, merges = tmp_path / "gpt2/vocab.json", tmp_path / "gpt2/merges.txt"
    vocab.write_text(json.dumps(model["vocab"]))
    merges.write_text("#version: 0.2\n" + "".join(" ".join(pair) + "\n" for pair in model["merges"]))
    texts = [mixed_text(60_000, 1), b"a <|endoftext|> b"]
    assert_ids_are_pythons(bmojo, vocab, texts, tmp_path / "vocab")
    _, documents = encoded(bmojo, merges, texts, tmp_path / "merges")
    # Beside the shards lies one file that means the same, to Python too.
    one = tmp_path / "merges/out/tokenizer.json"
    assert one.read_bytes() == (tmp_path / "vocab/out/tokenizer.json").read_bytes()
    strings = [text.decode(errors="replace") for text in texts]
    assert [ids_of(oracle_of(one), text) for text in strings] == [ids.tolist() for ids in documents]
    assert bmojo.json("inspect", tmp_path / "merges/out", "--verify")["verified"] is True

    (tmp_path / "a.txt").write_text("text")
    flags = ["tokenize", "--out", tmp_path / "out", tmp_path / "a.txt", "--tokenizer"]
    for content, message in [
        ("a b\nab\n", "merges.txt:2: must be two tokens with a blank between, got 'ab'"),
        ("a b c\n", "merges.txt:1: must be two tokens with a blank between, got 'a b c'"),
        ("a b\n\na b\n", "merges.txt:2: must be two tokens with a blank between, got ''"),
        ("Ġ 語\n", "vocab.json: model.merges must be of tokens of the vocabulary, got '語' in merge 0"),
    ]:
        merges.write_text(content)
        assert message in bmojo(*flags, vocab, code=2)
    vocab.write_text("[]")
    assert "vocab.json: must be an object of tokens and their ids, got array" in bmojo(
        *flags, vocab, code=2)
    merges.unlink()
    message = bmojo(*flags, vocab, code=2)
    assert f"tokenizer: vocab.json and merges.txt must lie side by side, got no '{merges}'" in message
    assert not (tmp_path / "out").exists()


def test_a_stop_may_begin_within_a_token(bmojo, small, tmp_path):
    """Tokens of several bytes: what stands before the stop in its first token is kept."""
    model = tmp_path / "model"
    bmojo("init", "--preset", "bmojo-tiny", "--set", "vocab_size=1200", "--set", "window=8",
          "--set", "eidetic_tokens=5", "--seed", "1", "--out", model)  # fmt: skip
    command = ["generate", "--model", model, "--tokenizer", small["gpt2"], "--prompt", "The ",
               "--max-tokens", "60", "--ignore-eos", "--seed", "5"]  # fmt: skip
    whole = bmojo.json(*command)
    pieces = Tokenizer.from_file(str(small["gpt2"])).decode_batch([[i] for i in whole["ids"]])
    ends = list(itertools.accumulate(map(len, pieces)))
    within = 0
    for start in range(10, 60):
        stop = whole["text"][start : start + 3]
        if not stop.isascii() or "\0" in stop:  # which no argument can hold
            continue
        result = bmojo.json(*command, "--stop", stop)
        first = whole["text"].index(stop)
        assert result["finish"] == "stop" and result["text"] == whole["text"][:first]
        assert result["ids"] == whole["ids"][: len(result["ids"])]
        within += first not in ends
    assert within > 5


def test_shards_carry_the_tokenizer(bmojo, small, tmp_path):
    (tmp_path / "a.txt").write_text("some text")
    got = bmojo.json("tokenize", "--tokenizer", small["smollm2"], "--out", tmp_path / "out",
                     tmp_path / "a.txt")  # fmt: skip
    assert (got["tokenizer"], got["vocab_size"]) == ("bpe", 1200)
    assert listing(tmp_path / "out") == ["shard-00000.tokens", "tokenizer.json"]
    assert (tmp_path / "out/tokenizer.json").read_bytes() == small["smollm2"].read_bytes()
    got = bmojo.json("inspect", tmp_path / "out", "--verify")
    assert (got["tokenizer"], got["end_of_document"]) == ("bpe", 0)
    assert got["tokenizer_file"] == str(tmp_path / "out/tokenizer.json")
    (tmp_path / "out/tokenizer.json").write_bytes(small["gpt2"].read_bytes())
    message = bmojo("inspect", tmp_path / "out", "--verify", code=2)
    assert "tokenizer.json: digest must be xxh3-128:" in message


# --- what is refused -----------------------------------------------------------------------------


def added(text, **flags):
    token = {"id": 1200, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": True, "special": False}  # fmt: skip
    return lambda t: t["added_tokens"].append(token | flags)


def put(*way_and_value):
    *way, last, value = way_and_value

    def change(tokenizer):
        for key in way:
            tokenizer = tokenizer[key]
        tokenizer[last] = value

    return change


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
SPLIT = {"type": "Split", "pattern": {"Regex": LLAMA3_PATTERN}, "behavior": "Isolated",
         "invert": False}  # fmt: skip
PLAIN = BYTE_LEVEL | {"use_regex": False}


def sequence(*parts):
    return put("pre_tokenizer", {"type": "Sequence", "pretokenizers": list(parts)})


def bert(*items):
    special = {"[CLS]": {"id": "[CLS]", "ids": [1], "tokens": ["[CLS]"]}}
    return {"type": "TemplateProcessing", "single": list(items), "pair": [],
            "special_tokens": special}  # fmt: skip


CLS = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}
TEXT = {"Sequence": {"id": "A", "type_id": 0}}


@pytest.mark.parametrize("change, message", [
    (put("model", "type", "WordPiece"), "model.type must be BPE, got 'WordPiece'"),
    (put("model", "type", "Unigram"), "model.type must be BPE, got 'Unigram'"),
    (put("model", "dropout", 0.1), "model.dropout must be none, got 0.1"),
    (put("model", "byte_fallback", True), "model.byte_fallback must be false, got true"),
    (put("model", "byte_fallback", 1), "model.byte_fallback must be true or false, got 1"),
    (put("model", "continuing_subword_prefix", "##"),
     "model.continuing_subword_prefix must be none, got '##'"),
    (put("model", "end_of_word_suffix", "</w>"), "model.end_of_word_suffix must be none, got '</w>'"),
    (put("model", "scores", []), "model has a part that bmojo does not have, 'scores'"),
    (put("model", "vocab", {}), "model.vocab must be an object of tokens and their ids, got none"),
    (put("model", "vocab", "a", 7), "must number its 1200 tokens from 0 to 1199, each once, got 7"),
    (put("model", "vocab", "a", -1), "each once, got -1 for 'a'"),
    (put("model", "vocab", "a", "x"), "each once, got 'x' for 'a'"),
    (put("model", "vocab", [1]), "model.vocab must be an object of tokens and their ids, got array"),
    (put("model", "merges", {}), "model.merges must be an array, got object"),
    (put("model", "merges", 0, ["a"]), "model.merges must be a string, got array"),
    (put("model", "merges", 0, "ab"), "must be two tokens with a blank between, got 'ab'"),
    (put("model", "merges", 3, ["語", "a"]),
     "model.merges must be of tokens of the vocabulary, got '語' in merge 3"),
    (put("model", "merges", 3, ["!", "語"]), "got '語' in merge 3"),
    (put("model", "merges", 3, ["~", "~"]), "got '~~' in merge 3"),
    (put("model", []), "model must be an object, got array"),
    (put("truncation", {"max_length": 5}), "truncation must be none, got object"),
    (put("padding", {"strategy": "BatchLongest"}), "padding must be none, got object"),
    (put("normalizer", {"type": "NFKC"}), "normalizer must be none or NFC, got 'NFKC'"),
    (put("normalizer", {"type": "Lowercase"}), "normalizer must be none or NFC, got 'Lowercase'"),
    (put("normalizer", "NFC"), "normalizer must be an object, got 'NFC'"),
    (put("pre_tokenizer", None), "ByteLevel, or Split and ByteLevel, got 'none'"),
    (put("pre_tokenizer", {"type": "Whitespace"}), "Split and ByteLevel, got 'Whitespace'"),
    (put("pre_tokenizer", {"type": "Metaspace"}), "Split and ByteLevel, got 'Metaspace'"),
    (put("pre_tokenizer", "add_prefix_space", True),
     "pre_tokenizer.add_prefix_space must be false, got true"),
    (put("pre_tokenizer", "use_regex", False), "pre_tokenizer.use_regex must be true, got false"),
    (put("pre_tokenizer", "more", 1), "pre_tokenizer has a part that bmojo does not have, 'more'"),
    (sequence(BYTE_LEVEL), "must be Digits and ByteLevel, or Split and ByteLevel, got 'ByteLevel'"),
    (sequence({"type": "Punctuation"}, BYTE_LEVEL), "got 'Punctuation, ByteLevel'"),
    (sequence({"type": "Digits", "individual_digits": False}, BYTE_LEVEL),
     "pretokenizers[0].individual_digits must be true, got false"),
    (sequence({"type": "Digits", "individual_digits": True}, PLAIN),
     "pretokenizers[1].use_regex must be true, got false"),
    (sequence(SPLIT, BYTE_LEVEL), "pretokenizers[1].use_regex must be false, got true"),
    (sequence(SPLIT | {"pattern": {"Regex": r"\p{L}+"}}, PLAIN),
     r"pretokenizers[0].pattern must be that of GPT-2 or of Llama 3, got '\p{L}+'"),
    (sequence(SPLIT | {"pattern": {"String": " "}}, PLAIN), "does not have, 'String'"),
    (sequence(SPLIT | {"behavior": "Removed"}, PLAIN), "behavior must be Isolated, got 'Removed'"),
    (sequence(SPLIT | {"invert": True}, PLAIN), "invert must be false, got true"),
    (put("post_processor", {"type": "BertProcessing"}),
     "post_processor must be none, ByteLevel or TemplateProcessing, got 'BertProcessing'"),
    (put("post_processor", bert(CLS, TEXT, CLS)),
     "post_processor.single must add nothing but one token before the text, got another template"),
    (put("post_processor", bert(TEXT, CLS)), "must add nothing but one token before the text"),
    (put("post_processor", {"type": "Sequence", "processors": [{"type": "RobertaProcessing"}]}),
     "post_processor.processors[0] must be none, ByteLevel or TemplateProcessing, got 'Roberta"),
    (put("decoder", {"type": "WordPiece"}), "decoder must be ByteLevel, got 'WordPiece'"),
    (put("unheard", 1), "tokenizer.json: has a part that bmojo does not have, 'unheard'"),
    (added("<mask>", lstrip=True), "added_tokens[2].lstrip must be false, got true"),
    (added("<mask>", rstrip=True), "added_tokens[2].rstrip must be false, got true"),
    (added("<mask>", single_word=True), "added_tokens[2].single_word must be false, got true"),
    (added("<mask>", id=1201), "added_tokens[2].id must be 1200, got 1201 for '<mask>'"),
    (added("<mask>", id=-1), "added_tokens[2].id must be a whole number below 16777216, got -1"),
    (added("a", id=1200), "added_tokens[2].id must be 6"),
    (added(""), "added_tokens[2].content must not be empty"),
    (added(END, id=0), "added_tokens must appear once, got '<|endoftext|>' twice"),
    (put("added_tokens", []), "must have a special added token to end documents with, "
     "<|endoftext|> or <|end_of_text|> or </s>, got none"),
])  # fmt: skip
def test_parts_that_are_not_there_are_refused_by_name(bmojo, small, tmp_path, change, message):
    tokenizer = json.loads(small["gpt2"].read_text())
    change(tokenizer)
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(tokenizer))
    (tmp_path / "a.txt").write_text("text")
    error = bmojo("tokenize", "--tokenizer", file, "--out", tmp_path / "out", tmp_path / "a.txt",
                  code=2)  # fmt: skip
    assert error.startswith(f"bmojo: {file}: ") and message in error
    assert not (tmp_path / "out").exists()


def test_an_unknown_token_is_refused_where_bytes_are_missing(bmojo, small, tmp_path):
    tokenizer = json.loads(small["gpt2"].read_text())
    tokenizer["model"]["unk_token"] = END
    (tmp_path / "a.txt").write_text("text")
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(tokenizer))
    bmojo("tokenize", "--tokenizer", file, "--out", tmp_path / "out", tmp_path / "a.txt")
    tokenizer["model"] |= {"vocab": {END: 0, "a": 1, "<|im_start|>": 2}, "merges": []}
    tokenizer["added_tokens"][1]["id"] = 2
    file.write_text(json.dumps(tokenizer))
    message = bmojo("tokenize", "--tokenizer", file, "--out", tmp_path / "b", tmp_path / "a.txt",
                    code=2)  # fmt: skip
    assert "model.unk_token must be none where bytes are missing in the 3 tokens, got '<|end" in message


def test_damaged_files_end_in_one_line(bmojo, small, tmp_path):
    whole = small["gpt2"].read_bytes()
    (tmp_path / "a.txt").write_text("text")
    file = tmp_path / "tokenizer.json"
    draw = random.Random(1)
    cases = [b"", b"{}", b"[]", b"{", whole[:-1], whole[: len(whole) // 2], b"\xff" + whole,
             whole.replace(b'"BPE"', b'"BPE", "type": "BPE"'), b"<html>"]  # fmt: skip
    for _ in range(40):
        at, size = draw.randrange(len(whole)), draw.choice([1, 1, 5, 300])
        cases.append(whole[:at] + draw.randbytes(draw.choice([0, 1, size])) + whole[at + size :])
    for i, case in enumerate(cases):
        file.write_bytes(case)
        out = tmp_path / f"out{i}"
        command = [bmojo.path, "tokenize", "--tokenizer", file, "--out", out, tmp_path / "a.txt"]
        process = subprocess.run(command, capture_output=True, text=True)
        if i < 9:
            assert process.returncode == 2
        assert process.returncode in (0, 2), process.stderr
        if process.returncode == 2:
            assert process.stderr.startswith(f"bmojo: {file}: ") and not out.exists()
            assert len(process.stderr.splitlines()) == 1
