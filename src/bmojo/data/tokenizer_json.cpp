#include "bmojo/data/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <unordered_map>
#include <utility>

#include "bmojo/base/error.h"
#include "bmojo/base/json.h"
#include "bmojo/base/printable.h"
#include "bmojo/data/unicode.h"

namespace bmojo::data {
namespace {

constexpr size_t kMostTokens = size_t{1} << 24;

using Ids = std::unordered_map<std::string_view, int32_t>;  // by token

// A value of the file and the way to it, for messages: "FILE: model.vocab".
struct Part {
  const base::Json* value;
  std::string name;

  bool is_null() const { return value->is_null(); }
  Part at(const char* key) const {
    static const base::Json null;
    const auto found = value->find(key);
    const bool is_top = name.ends_with(':');
    return {found == value->end() ? &null : &*found, name + (is_top ? " " : ".") + key};
  }
  Part at(size_t i) const { return {&value->at(i), fmt::format("{}[{}]", name, i)}; }
};

// Shown in a message: a short value, else its type.
std::string shown_value(const base::Json& value) {
  if (value.is_string()) return base::in_quotes(value.get_ref<const std::string&>());
  return value.is_structured() ? value.type_name() : base::printable(value.dump(), 80);
}

void require_object(const Part& part, std::initializer_list<std::string_view> keys) {
  base::require(part.value->is_object(), "{} must be an object, got {}", part.name,
                shown_value(*part.value));
  for (const auto& [key, value] : part.value->items())
    base::require(std::ranges::find(keys, key) != keys.end(),
                  "{} has a part that bmojo does not have, {}", part.name, base::in_quotes(key));
}

void require_array(const Part& part) {
  base::require(part.value->is_array(), "{} must be an array, got {}", part.name,
                shown_value(*part.value));
}

const std::string& text_of(const Part& part) {
  base::require(part.value->is_string(), "{} must be a string, got {}", part.name,
                shown_value(*part.value));
  return part.value->get_ref<const std::string&>();
}

bool flag(const Part& part, bool fallback) {
  if (part.is_null()) return fallback;
  base::require(part.value->is_boolean(), "{} must be true or false, got {}", part.name,
                shown_value(*part.value));
  return part.value->get<bool>();
}

void require_flag(const Part& part, bool needed, bool fallback) {
  base::require(flag(part, fallback) == needed, "{} must be {}, got {}", part.name, needed,
                !needed);
}

int32_t id_of(const Part& part) {
  base::require(part.value->is_number_unsigned() && part.value->get<uint64_t>() < kMostTokens,
                "{} must be a whole number below {}, got {}", part.name, kMostTokens,
                shown_value(*part.value));
  return part.value->get<int32_t>();
}

// The type of a part, e.g. "ByteLevel"; "none" for null.
std::string type_of(const Part& part) {
  if (part.is_null()) return "none";
  base::require(part.value->is_object(), "{} must be an object, got {}", part.name,
                shown_value(*part.value));
  return text_of(part.at("type"));
}

// --- what is done with the text before words are merged ---

bool reads_nfc(const Part& normalizer) {
  const auto type = type_of(normalizer);
  base::require(type == "none" || type == "NFC", "{} must be none or NFC, got {}", normalizer.name,
                base::in_quotes(type));
  if (type == "NFC") require_object(normalizer, {"type"});
  return type == "NFC";
}

// ByteLevel, with or without GPT-2's pattern; the offsets that it trims are no part of the ids.
bool splits_words(const Part& byte_level) {
  require_object(byte_level, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
  require_flag(byte_level.at("add_prefix_space"), false, true);
  return flag(byte_level.at("use_regex"), true);
}

SplitPattern pattern_of(const Part& split) {
  require_object(split, {"type", "pattern", "behavior", "invert"});
  const auto behavior = split.at("behavior");
  base::require(text_of(behavior) == "Isolated", "{} must be Isolated, got {}", behavior.name,
                shown_value(*behavior.value));
  require_flag(split.at("invert"), false, false);
  const auto pattern = split.at("pattern");
  require_object(pattern, {"Regex"});
  const auto& regex = text_of(pattern.at("Regex"));
  if (regex == kGpt2Regex) return SplitPattern::kGpt2;
  base::require(regex == kLlama3Regex, "{} must be that of GPT-2 or of Llama 3, got {}",
                pattern.name, base::in_quotes(regex));
  return SplitPattern::kLlama3;
}

SplitPattern read_pre_tokenizer(const Part& part) {
  const auto type = type_of(part);
  if (type == "ByteLevel") {
    base::require(splits_words(part), "{}.use_regex must be true, got false", part.name);
    return SplitPattern::kGpt2;
  }
  base::require(type == "Sequence",
                "{} must be ByteLevel, Digits and ByteLevel, or Split and ByteLevel, got {}",
                part.name, base::in_quotes(type));
  require_object(part, {"type", "pretokenizers"});
  const auto steps = part.at("pretokenizers");
  require_array(steps);
  std::vector<std::string> types;
  for (size_t i = 0; i < steps.value->size(); ++i) types.push_back(type_of(steps.at(i)));
  const bool digits = types == std::vector<std::string>{"Digits", "ByteLevel"};
  base::require(digits || types == std::vector<std::string>{"Split", "ByteLevel"},
                "{} must be Digits and ByteLevel, or Split and ByteLevel, got {}", steps.name,
                base::in_quotes(fmt::format("{}", fmt::join(types, ", "))));
  const bool by_regex = splits_words(steps.at(1));
  base::require(by_regex == digits, "{}.use_regex must be {}, got {}", steps.at(1).name, digits,
                by_regex);
  if (!digits) return pattern_of(steps.at(size_t{0}));
  const auto first = steps.at(size_t{0});
  require_object(first, {"type", "individual_digits"});
  require_flag(first.at("individual_digits"), true, false);
  return SplitPattern::kDigits;
}

// --- what is done with the ids: nothing ---

// Texts are encoded without a mark at their beginning, as with other tokenizers. So a template may
// be that of Llama 3, which puts one token before the text.
void check_template(const Part& part) {
  require_object(part, {"type", "single", "pair", "special_tokens"});
  const auto single = part.at("single");
  require_array(single);
  const auto& items = *single.value;
  const auto is = [&](size_t i, const char* kind) {
    return items[i].is_object() && items[i].size() == 1 && items[i].contains(kind);
  };
  const bool marks_begin = items.size() == 2 && is(0, "SpecialToken") && is(1, "Sequence");
  base::require(marks_begin || (items.size() == 1 && is(0, "Sequence")),
                "{} must add nothing but one token before the text, got another template",
                single.name);
}

void check_post_processor(const Part& part) {
  const auto type = type_of(part);
  if (type == "none" || type == "ByteLevel") return;
  if (type == "TemplateProcessing") return check_template(part);
  base::require(type == "Sequence", "{} must be none, ByteLevel or TemplateProcessing, got {}",
                part.name, base::in_quotes(type));
  const auto steps = part.at("processors");
  require_array(steps);
  for (size_t i = 0; i < steps.value->size(); ++i) {
    base::require(type_of(steps.at(i)) != "Sequence", "{} must not be a sequence again",
                  steps.at(i).name);
    check_post_processor(steps.at(i));
  }
}

// --- vocabulary and merges ---

std::vector<std::string> read_tokens(const Part& vocab) {
  base::require(vocab.value->is_object() && !vocab.value->empty(),
                "{} must be an object of tokens and their ids, got {}", vocab.name,
                vocab.value->is_object() ? "none" : shown_value(*vocab.value));
  const size_t count = vocab.value->size();
  std::vector<std::string> tokens(count);
  std::vector<bool> taken(count);
  for (const auto& [token, value] : vocab.value->items()) {
    const bool fits = value.is_number_unsigned() && value.get<uint64_t>() < count;
    if (!fits || taken[value.get<size_t>()])
      base::fail("{} must number its {} tokens from 0 to {}, each once, got {} for {}", vocab.name,
                 count, count - 1, shown_value(value), base::in_quotes(token));
    taken[value.get<size_t>()] = true;
    tokens[value.get<size_t>()] = token;
  }
  return tokens;
}

// The two sides of a merge: ["a", "b"] or, in older files, "a b".
std::pair<std::string_view, std::string_view> sides_of(const base::Json& value,
                                                       const std::string& name) {
  if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string())
    return {value[0].get_ref<const std::string&>(), value[1].get_ref<const std::string&>()};
  if (!value.is_string()) base::fail("{} must be a string, got {}", name, shown_value(value));
  const std::string_view text = value.get_ref<const std::string&>();
  const size_t blank = text.find(' ');
  if (blank == text.npos || text.find(' ', blank + 1) != text.npos)
    base::fail("{} must be two tokens with a blank between, got {}", name, base::in_quotes(text));
  return {text.substr(0, blank), text.substr(blank + 1)};
}

std::vector<BpeMerge> read_merges(const Part& part, const Ids& ids) {
  require_array(part);
  const size_t count = part.value->size();
  base::require(count < kMostTokens, "{} must be fewer than {}, got {}", part.name, kMostTokens,
                count);
  std::vector<BpeMerge> merges;
  merges.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const auto [left, right] = sides_of((*part.value)[i], part.name);
    const auto find = [&](std::string_view token) {
      const auto found = ids.find(token);
      if (found == ids.end())
        base::fail("{} must be of tokens of the vocabulary, got {} in merge {}", part.name,
                   base::in_quotes(token), i);
      return found->second;
    };
    merges.push_back({find(left), find(right), find(std::string(left) + std::string(right))});
  }
  return merges;
}

void check_model(const Part& model) {
  require_object(model,
                 {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                  "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
  const auto type = model.at("type");
  base::require(type.is_null() || text_of(type) == "BPE", "{} must be BPE, got {}", type.name,
                shown_value(*type.value));
  const auto dropout = model.at("dropout");
  base::require(dropout.is_null() || *dropout.value == 0, "{} must be none, got {}", dropout.name,
                shown_value(*dropout.value));
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const auto affix = model.at(key);
    base::require(affix.is_null() || text_of(affix).empty(), "{} must be none, got {}", affix.name,
                  shown_value(*affix.value));
  }
  require_flag(model.at("byte_fallback"), false, false);
  flag(model.at("fuse_unk"), false);
}

// A byte without a token is left out of the ids, unless the file names a token for what is unknown.
void check_unknown(const Part& token, const std::vector<std::string>& tokens, const Ids& ids) {
  if (token.is_null()) return;
  text_of(token);
  size_t num_bytes = 0;
  for (const uint32_t code : byte_characters()) {
    const std::string text = code < 0x80 ? std::string(1, static_cast<char>(code))
                                         : std::string{static_cast<char>(0xc0 | code >> 6),
                                                       static_cast<char>(0x80 | (code & 0x3f))};
    num_bytes += ids.contains(text);
  }
  base::require(num_bytes == 256,
                "{} must be none where bytes are missing in the {} tokens, got {}", token.name,
                tokens.size(), shown_value(*token.value));
}

std::vector<AddedToken> read_added(const Part& part, const Ids& ids) {
  std::vector<AddedToken> added;
  if (part.is_null()) return added;
  require_array(part);
  auto next = static_cast<int32_t>(ids.size());
  std::unordered_map<std::string_view, size_t> seen;
  for (size_t i = 0; i < part.value->size(); ++i) {
    const auto token = part.at(i);
    require_object(token,
                   {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    const auto& text = text_of(token.at("content"));
    base::require(!text.empty(), "{} must not be empty", token.at("content").name);
    base::require(seen.emplace(text, i).second, "{} must appear once, got {} twice", part.name,
                  base::in_quotes(text));
    for (const char* key : {"single_word", "lstrip", "rstrip"})
      require_flag(token.at(key), false, false);
    const auto known = ids.find(text);
    const int32_t expected = known == ids.end() ? next++ : known->second;
    const int32_t id = id_of(token.at("id"));
    base::require(id == expected, "{} must be {}, got {} for {}", token.at("id").name, expected, id,
                  base::in_quotes(text));
    const bool special = flag(token.at("special"), false);
    added.push_back({id, text, special, flag(token.at("normalized"), !special)});
  }
  return added;
}

Ids ids_of(const std::vector<std::string>& tokens) {
  Ids ids;
  ids.reserve(tokens.size());
  for (size_t id = 0; id < tokens.size(); ++id) ids.emplace(tokens[id], static_cast<int32_t>(id));
  return ids;
}

}  // namespace

ByteLevelSpec read_tokenizer_json(std::string_view text, const std::string& subject) {
  const base::Json json = base::parse_json(text, subject);
  const Part top{&json, subject + ":"};
  require_object(top, {"version", "truncation", "padding", "added_tokens", "normalizer",
                       "pre_tokenizer", "post_processor", "decoder", "model"});
  for (const char* key : {"truncation", "padding"})
    base::require(top.at(key).is_null(), "{} must be none, got {}", top.at(key).name,
                  shown_value(*top.at(key).value));
  const auto model = top.at("model");
  check_model(model);
  ByteLevelSpec spec;
  spec.nfc = reads_nfc(top.at("normalizer"));
  spec.pattern = read_pre_tokenizer(top.at("pre_tokenizer"));
  check_post_processor(top.at("post_processor"));
  const auto decoder = top.at("decoder");
  const auto decoder_type = type_of(decoder);
  base::require(decoder_type == "none" || decoder_type == "ByteLevel",
                "{} must be ByteLevel, got {}", decoder.name, base::in_quotes(decoder_type));
  spec.tokens = read_tokens(model.at("vocab"));
  const auto ids = ids_of(spec.tokens);
  check_unknown(model.at("unk_token"), spec.tokens, ids);
  spec.merges = read_merges(model.at("merges"), ids);
  spec.ignore_merges = flag(model.at("ignore_merges"), false);
  spec.added = read_added(top.at("added_tokens"), ids);
  return spec;
}

std::string tokenizer_json_of(std::string_view vocab, const std::string& vocab_subject,
                              std::string_view merges, const std::string& merges_subject) {
  base::Json tokens = base::parse_json(vocab, vocab_subject);
  base::require(tokens.is_object(), "{}: must be an object of tokens and their ids, got {}",
                vocab_subject, tokens.type_name());
  base::Json pairs = base::Json::array();
  size_t number = 0;
  while (!merges.empty()) {
    const size_t end = std::min(merges.find('\n'), merges.size());
    auto line = merges.substr(0, end);
    merges.remove_prefix(std::min(end + 1, merges.size()));
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("#version") || (line.empty() && merges.empty())) continue;
    if (find_utf8_fault(line).at < line.size() || std::ranges::count(line, ' ') != 1)
      base::fail("{}:{}: must be two tokens with a blank between, got {}", merges_subject, number,
                 base::in_quotes(line));
    pairs.push_back(line);
  }
  base::Json added = base::Json::array();
  constexpr const char* kEnd = "<|endoftext|>";
  if (const auto found = tokens.find(kEnd); found != tokens.end())
    added.push_back({{"id", *found},
                     {"content", kEnd},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  const base::Json byte_level = {{"type", "ByteLevel"},
                                 {"add_prefix_space", false},
                                 {"trim_offsets", true},
                                 {"use_regex", true}};
  const base::Json json = {{"version", "1.0"},
                           {"truncation", nullptr},
                           {"padding", nullptr},
                           {"added_tokens", std::move(added)},
                           {"normalizer", nullptr},
                           {"pre_tokenizer", byte_level},
                           {"post_processor", nullptr},
                           {"decoder", byte_level},
                           {"model",
                            {{"type", "BPE"},
                             {"dropout", nullptr},
                             {"unk_token", nullptr},
                             {"continuing_subword_prefix", nullptr},
                             {"end_of_word_suffix", nullptr},
                             {"fuse_unk", false},
                             {"byte_fallback", false},
                             {"ignore_merges", false},
                             {"vocab", std::move(tokens)},
                             {"merges", std::move(pairs)}}}};
  return json.dump();
}

std::vector<uint32_t> byte_characters() {
  std::vector<uint32_t> characters(256);
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
    characters[byte] = is_printable ? byte : next++;
  }
  return characters;
}

}  // namespace bmojo::data
