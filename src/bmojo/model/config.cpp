#include "bmojo/model/config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <variant>

#include "bmojo/base/error.h"
#include "bmojo/base/printable.h"

namespace bmojo::model {
namespace {

using Member =
    std::variant<int64_t Config::*, double Config::*, bool Config::*, std::string Config::*>;
struct Field {
  std::string_view name;
  Member member;
};

// The one list. Order is the order of config.json.
constexpr std::array kFields = {
    Field{"vocab_size", &Config::vocab_size},
    Field{"hidden_size", &Config::hidden_size},
    Field{"num_layers", &Config::num_layers},
    Field{"pattern", &Config::pattern},
    Field{"tied_embeddings", &Config::tied_embeddings},
    Field{"norm_eps", &Config::norm_eps},
    Field{"ssm_inner_size", &Config::ssm_inner_size},
    Field{"ssm_state_size", &Config::ssm_state_size},
    Field{"ssm_conv_taps", &Config::ssm_conv_taps},
    Field{"ssm_conv_bias", &Config::ssm_conv_bias},
    Field{"ssm_dt_rank", &Config::ssm_dt_rank},
    Field{"ssm_bias", &Config::ssm_bias},
    Field{"num_heads", &Config::num_heads},
    Field{"num_kv_heads", &Config::num_kv_heads},
    Field{"head_size", &Config::head_size},
    Field{"window", &Config::window},
    Field{"rope_theta", &Config::rope_theta},
    Field{"fading_tokens", &Config::fading_tokens},
    Field{"fading_mode", &Config::fading_mode},
    Field{"fading_tied", &Config::fading_tied},
    Field{"eidetic_tokens", &Config::eidetic_tokens},
    Field{"eidetic_rule", &Config::eidetic_rule},
    Field{"predictor_taps", &Config::predictor_taps},
    Field{"predictor_decay", &Config::predictor_decay},
    Field{"innovation_bias", &Config::innovation_bias},
    Field{"fading_residual", &Config::fading_residual},
    Field{"mlp_size", &Config::mlp_size},
    Field{"bos_token_id", &Config::bos_token_id},
    Field{"eos_token_id", &Config::eos_token_id},
};

constexpr std::array<std::string_view, 5> kEideticRules = {"innovation", "first", "recent",
                                                           "random", "oracle"};

const Field* find_field(std::string_view name) {
  const auto it = std::ranges::find(kFields, name, &Field::name);
  return it == kFields.end() ? nullptr : &*it;
}

void assign(Config& config, const Field& field, const base::Json& value, std::string_view subject) {
  const auto wrong = [&](std::string_view type) {
    // --set may bring any bytes: those that are not UTF-8 are replaced.
    base::fail(
        "{}: {} must be {}, got {}", subject, field.name, type,
        base::printable(value.dump(-1, ' ', false, base::Json::error_handler_t::replace), 80));
  };
  if (auto member = std::get_if<int64_t Config::*>(&field.member)) {
    const auto whole = subject == "--set" ? "a whole number in digits" : "a whole number";
    if (!value.is_number_integer()) wrong(whole);
    if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) wrong(whole);
    config.*(*member) = value.get<int64_t>();
  } else if (auto member = std::get_if<double Config::*>(&field.member)) {
    if (!value.is_number()) wrong("a number");
    config.*(*member) = value.get<double>();
  } else if (auto member = std::get_if<bool Config::*>(&field.member)) {
    if (!value.is_boolean()) wrong("true or false");
    config.*(*member) = value.get<bool>();
  } else {
    if (!value.is_string()) wrong("text");
    config.*std::get<std::string Config::*>(field.member) = value.get<std::string>();
  }
}

// The one field that models were saved without: they choose by innovation.
std::string_view remedy_without(const Field& field) {
  if (field.name == "eidetic_rule")
    return "for a model saved before there were rules, add \"eidetic_rule\": \"innovation\"";
  return "add it as docs/checkpoint.md describes it";
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

LayerKind parse_kind(std::string_view name, std::string_view pattern) {
  if (name == "bmojo") return LayerKind::bmojo;
  if (name == "ssm") return LayerKind::ssm;
  if (name == "attention") return LayerKind::attention;
  base::fail("config: pattern must list bmojo, ssm or attention, got {}", base::in_quotes(pattern));
}

void check_range(std::string_view name, int64_t value, int64_t low, int64_t high) {
  base::require(value >= low && value <= high, "config: {} must be from {} to {}, got {}", name,
                low, high, value);
}

// Bounds far beyond any model, under which no count of parameters or bytes overflows 63 bits.
constexpr int64_t kMaxVocabulary = int64_t{1} << 24, kMaxSize = int64_t{1} << 20, kMaxLayers = 4096,
                  kMaxHeads = 1024, kMaxHeadSize = 2048, kMaxTokens = int64_t{1} << 24;

// What no layer has may be 0, but is counted with all the same.
void validate_ssm(const Config& c) {
  const int64_t least = c.has_ssm() ? 1 : 0;
  check_range("ssm_inner_size", c.ssm_inner_size, least, kMaxSize);
  check_range("ssm_state_size", c.ssm_state_size, least, 65536);
  check_range("ssm_conv_taps", c.ssm_conv_taps, least, 1024);
  check_range("ssm_dt_rank", c.ssm_dt_rank, least, kMaxSize);
}

void validate_attention(const Config& c) {
  const int64_t least = c.has_attention() ? 1 : 0;
  check_range("num_heads", c.num_heads, least, kMaxHeads);
  check_range("num_kv_heads", c.num_kv_heads, least, kMaxHeads);
  check_range("head_size", c.head_size, least, kMaxHeadSize);
  if (!c.has_attention()) return;
  base::require(c.num_heads % c.num_kv_heads == 0,
                "config: num_heads must be a multiple of num_kv_heads = {}, got {}", c.num_kv_heads,
                c.num_heads);
  base::require(
      c.rope_theta == 0 || c.head_size % 2 == 0,
      "config: head_size must be even with rope_theta, got {}; set rope_theta=0 or an even size",
      c.head_size);
}

void validate_bmojo(const Config& c) {
  base::require(
      c.window > 0 || (c.fading_tokens == 0 && c.eidetic_tokens == 0),
      "config: window must be at least 1 with fading or eidetic tokens, got 0 (unlimited); "
      "set window, or fading_tokens=0 and eidetic_tokens=0");
  base::require(c.eidetic_tokens == 0 || c.predictor_taps > 0,
                "config: predictor_taps must be at least 1 with eidetic tokens, got 0");
  base::require(
      c.fading_tokens > 0 || c.eidetic_tokens > 0 || c.fading_residual,
      "config: a bmojo layer needs fading_tokens, eidetic_tokens or fading_residual, got none; "
      "use pattern=attention");
}

}  // namespace

LayerKind Config::kind(int64_t layer) const {
  // Without a list of them, which would be made anew for every token that an engine reads.
  std::string_view rest = pattern;
  for (auto before = layer % (std::ranges::count(pattern, ',') + 1); before > 0; --before)
    rest.remove_prefix(rest.find(',') + 1);
  return parse_kind(rest.substr(0, rest.find(',')), pattern);
}

bool Config::has(LayerKind wanted) const {
  const auto kinds = split(pattern, ',');
  const auto used = std::min(kinds.size(), static_cast<size_t>(std::max<int64_t>(num_layers, 0)));
  return std::any_of(kinds.begin(), kinds.begin() + static_cast<ptrdiff_t>(used),
                     [&](auto name) { return parse_kind(name, pattern) == wanted; });
}

std::vector<std::string> config_fields() {
  std::vector<std::string> names;
  for (const auto& field : kFields) names.emplace_back(field.name);
  return names;
}

base::Json to_json(const Config& config) {
  base::Json json = {{"model_type", "bmojo"}};
  for (const auto& field : kFields)
    std::visit([&](auto member) { json[std::string(field.name)] = config.*member; }, field.member);
  return json;
}

Config config_from_json(const base::Json& json, std::string_view subject) {
  base::require(json.is_object(), "{}: config must be a JSON object, got {}", subject,
                json.type_name());
  Config config;
  for (const auto& [name, value] : json.items()) {
    if (name == "model_type") {
      base::require(value == "bmojo",
                    "{}: model_type must be \"bmojo\", got {}; bmojo import reads others", subject,
                    base::printable(value.dump(), 80));
      continue;
    }
    const Field* field = find_field(name);
    base::require(field != nullptr, "{}: field {} is not known; bmojo config --list names them all",
                  subject, base::in_quotes(name));
    assign(config, *field, value, subject);
  }
  for (const auto& field : kFields)
    base::require(json.contains(field.name), "{}: field {} is missing; {}", subject, field.name,
                  remedy_without(field));
  validate(config);
  return config;
}

void set_field(Config& config, std::string_view assignment) {
  const size_t equals = assignment.find('=');
  base::require(equals != std::string_view::npos, "--set: must be key=value, got {}",
                base::in_quotes(assignment));
  const auto name = assignment.substr(0, equals), text = assignment.substr(equals + 1);
  const Field* field = find_field(name);
  base::require(field != nullptr,
                "--set: field {} is not known; bmojo config --list names them all",
                base::in_quotes(name));
  const bool is_text = std::holds_alternative<std::string Config::*>(field->member);
  base::Json value =
      is_text ? base::Json(std::string(text)) : base::Json::parse(text, nullptr, false);
  // What is not JSON, or a whole number written otherwise (1e3), is refused by assign() with the
  // field's type; it shows the text as given.
  const bool is_whole = std::holds_alternative<int64_t Config::*>(field->member);
  if (value.is_discarded() || (is_whole && value.is_number_float())) value = std::string(text);
  assign(config, *field, value, "--set");
}

void validate(const Config& c) {
  check_range("vocab_size", c.vocab_size, 1, kMaxVocabulary);
  check_range("hidden_size", c.hidden_size, 1, kMaxSize);
  check_range("num_layers", c.num_layers, 1, kMaxLayers);
  check_range("mlp_size", c.mlp_size, 0, kMaxSize);
  check_range("window", c.window, 0, kMaxTokens);
  check_range("fading_tokens", c.fading_tokens, 0, kMaxTokens);
  check_range("eidetic_tokens", c.eidetic_tokens, 0, kMaxTokens);
  check_range("predictor_taps", c.predictor_taps, 0, 1024);
  check_range("bos_token_id", c.bos_token_id, -1, c.vocab_size - 1);
  check_range("eos_token_id", c.eos_token_id, -1, c.vocab_size - 1);
  base::require(c.norm_eps > 0 && std::isfinite(c.norm_eps),
                "config: norm_eps must be above 0, got {}", c.norm_eps);
  base::require(c.rope_theta >= 0 && std::isfinite(c.rope_theta),
                "config: rope_theta must be 0 (none) or above, got {}", c.rope_theta);
  base::require(c.predictor_decay > 0 && c.predictor_decay <= 1,
                "config: predictor_decay must be above 0 and at most 1, got {}", c.predictor_decay);
  base::require(c.fading_mode == "chunk" || c.fading_mode == "sliding",
                "config: fading_mode must be chunk or sliding, got {}",
                base::in_quotes(c.fading_mode));
  base::require(std::ranges::find(kEideticRules, c.eidetic_rule) != kEideticRules.end(),
                "config: eidetic_rule must be one of {}, got {}", fmt::join(kEideticRules, ", "),
                base::in_quotes(c.eidetic_rule));
  base::require(c.pattern.size() <= 1024, "config: pattern must be at most 1024 characters, got {}",
                c.pattern.size());
  for (const auto name : split(c.pattern, ',')) parse_kind(name, c.pattern);
  validate_ssm(c);
  validate_attention(c);
  if (c.has(LayerKind::bmojo)) validate_bmojo(c);
}

}  // namespace bmojo::model
