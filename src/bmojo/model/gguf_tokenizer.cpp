#include "bmojo/model/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

#include "bmojo/base/error.h"
#include "bmojo/base/json.h"
#include "bmojo/base/printable.h"
#include "bmojo/model/gguf_fields.h"

namespace bmojo::model {
namespace {

constexpr std::string_view kByteLevel =
    R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true})";
constexpr std::string_view kDigits =
    R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},)"
    R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}]})";
constexpr std::string_view kLlama3 =
    R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":)"
    R"("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|)"
    R"( ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},)"
    R"("behavior":"Isolated","invert":false},)"
    R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]})";

// What tokenizer.ggml.pre stands for: that part of a tokenizer.json which splits a text into words.
// A file does not say it; these are the tokenizers that the names were made for.
struct Splitter {
  std::string_view name;
  std::string_view pre_tokenizer;
  bool nfc = false;            // a normaliser stands before
  bool ignore_merges = false;  // a word that is a token is not merged
};
constexpr std::array kSplitters = {
    Splitter{"gpt-2", kByteLevel},
    Splitter{"smollm", kDigits},
    Splitter{"starcoder", kDigits},
    Splitter{"refact", kDigits},
    Splitter{"olmo", kByteLevel, true},  // GPT-NeoX's, and with it Mamba's
    Splitter{"mpt", kByteLevel, true},   // the same
    Splitter{"llama-bpe", kLlama3, false, true},
    Splitter{"llama3", kLlama3, false, true},
    Splitter{"llama-v3", kLlama3, false, true},
};

// tokenizer.ggml.token_type.
enum class TokenType : int32_t { normal = 1, unknown, control, user_defined, unused, byte };

class JsonText {
 public:
  explicit JsonText(const std::string& subject) : subject_(subject) {}

  void add(std::string_view json) { text_ += json; }
  void add_string(std::string_view value, std::string_view key) {
    try {
      text_ += base::Json(value).dump();
    } catch (const base::Json::exception&) {
      base::fail("{}: {} must be UTF-8, got {}", subject_, key, base::in_quotes(value));
    }
  }
  void add_number(size_t number) { fmt::format_to(std::back_inserter(text_), "{}", number); }
  // A comma between two items of a list.
  void separate(bool& first) {
    if (!first) text_ += ',';
    first = false;
  }
  std::string take() { return std::move(text_); }

 private:
  const std::string& subject_;
  std::string text_;
};

struct Vocabulary {
  std::vector<std::string_view> tokens, merges;
  std::vector<TokenType> types;  // of each token
};

std::vector<TokenType> read_types(const GgufFields& fields, size_t count) {
  constexpr std::string_view kKey = "tokenizer.ggml.token_type";
  std::vector<TokenType> types(count, TokenType::normal);
  const GgufValue* value = fields.array(kKey, GgufKind::i32);
  if (value == nullptr) return types;
  base::require(value->count == count, "{}: {} must be {}, one for each token, got {}",
                fields.subject(), kKey, count, value->count);
  if (count == 0) return types;
  std::memcpy(types.data(), value->bytes.data(), value->bytes.size());
  for (const auto type : types)
    base::require(type >= TokenType::normal && type <= TokenType::byte,
                  "{}: {} must be from 1 to 6, got {}", fields.subject(), kKey,
                  static_cast<int>(type));
  return types;
}

void add_added_tokens(JsonText& json, const Vocabulary& vocabulary) {
  bool first = true;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const auto type = vocabulary.types[id];
    const bool special = type == TokenType::control || type == TokenType::unknown;
    if (!special && type != TokenType::user_defined) continue;
    json.separate(first);
    json.add(R"({"id":)");
    json.add_number(id);
    json.add(R"(,"content":)");
    json.add_string(vocabulary.tokens[id], "tokenizer.ggml.tokens");
    json.add(R"(,"single_word":false,"lstrip":false,"rstrip":false,)");
    json.add(special ? R"("normalized":false,"special":true})"
                     : R"("normalized":true,"special":false})");
  }
}

std::string json_of(const Vocabulary& vocabulary, const Splitter& splitter,
                    const std::string& subject) {
  JsonText json(subject);
  json.add(R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)");
  add_added_tokens(json, vocabulary);
  json.add(splitter.nfc ? R"(],"normalizer":{"type":"NFC"},)" : R"(],"normalizer":null,)");
  json.add(R"("pre_tokenizer":)");
  json.add(splitter.pre_tokenizer);
  json.add(R"(,"post_processor":null,"decoder":)");
  json.add(kByteLevel);
  json.add(R"(,"model":{"type":"BPE","dropout":null,"unk_token":null,)");
  json.add(R"("continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,)");
  json.add(R"("byte_fallback":false,"ignore_merges":)");
  json.add(splitter.ignore_merges ? "true" : "false");
  json.add(R"(,"vocab":{)");
  bool first = true;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    json.separate(first);
    json.add_string(vocabulary.tokens[id], "tokenizer.ggml.tokens");
    json.add(":");
    json.add_number(id);
  }
  json.add(R"(},"merges":[)");
  first = true;
  for (const auto merge : vocabulary.merges) {
    json.separate(first);
    json.add_string(merge, "tokenizer.ggml.merges");
  }
  json.add("]}}");
  return json.take();
}

void require_distinct(const std::vector<std::string_view>& tokens, const std::string& subject) {
  auto sorted = tokens;
  std::ranges::sort(sorted);
  const auto twice = std::ranges::adjacent_find(sorted);
  if (twice != sorted.end())
    base::fail("{}: tokenizer.ggml.tokens must differ from each other, got {} twice", subject,
               base::in_quotes(*twice));
}

// Empty where bmojo has the file's kind of tokenizer, and then its splitter is set.
std::string reason_against(const GgufFields& fields, const Splitter*& splitter) {
  const auto model = fields.text("tokenizer.ggml.model"), pre = fields.text("tokenizer.ggml.pre");
  const auto shown = [](const auto& value) { return value ? base::in_quotes(*value) : "none"; };
  if (model != "gpt2")
    return fmt::format("tokenizer.ggml.model must be 'gpt2', got {}", shown(model));
  const auto found = std::ranges::find(kSplitters, pre.value_or(""), &Splitter::name);
  if (found == kSplitters.end()) {
    std::string names;
    for (const auto& known : kSplitters)
      names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
    return fmt::format("tokenizer.ggml.pre must be one of {}, got {}", names, shown(pre));
  }
  splitter = &*found;
  if (fields.flag("tokenizer.ggml.add_space_prefix").value_or(false))
    return "tokenizer.ggml.add_space_prefix must be false, got true";
  return "";
}

}  // namespace

GgufTokenizer tokenizer_of_gguf(const GgufHeader& header, const std::string& subject) {
  const GgufFields fields(header, subject);
  GgufTokenizer out;
  out.chat_template = fields.text("tokenizer.chat_template").value_or("");
  JsonText(subject).add_string(out.chat_template, "tokenizer.chat_template");  // UTF-8
  const Splitter* splitter = nullptr;
  out.why_not = reason_against(fields, splitter);
  if (!out.why_not.empty()) return out;
  Vocabulary vocabulary;
  for (const auto& [key, strings] : {std::pair("tokenizer.ggml.tokens", &vocabulary.tokens),
                                     std::pair("tokenizer.ggml.merges", &vocabulary.merges)}) {
    const GgufValue* array = fields.array(key, GgufKind::string);
    if (array == nullptr) fields.refuse(key, "given where tokenizer.ggml.model is 'gpt2'");
    *strings = strings_of(*array);
  }
  vocabulary.types = read_types(fields, vocabulary.tokens.size());
  require_distinct(vocabulary.tokens, subject);
  out.json = json_of(vocabulary, *splitter, subject);
  return out;
}

}  // namespace bmojo::model
