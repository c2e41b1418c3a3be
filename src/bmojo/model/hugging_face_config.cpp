#include "bmojo/model/hugging_face_config.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "bmojo/base/error.h"
#include "bmojo/base/printable.h"

namespace bmojo::model {
namespace {

// '#' stands for the layer. The first row whose native side begins a name gives its other name; the
// rest of the name is the same on both sides.
struct NamePair {
  std::string_view native, hugging_face;
};
constexpr NamePair kMambaNames[] = {
    {"embedding.", "backbone.embeddings."},
    {"layers.#.norm.", "backbone.layers.#.norm."},
    {"layers.#.ssm.", "backbone.layers.#.mixer."},
    {"norm.", "backbone.norm_f."},
    {"head.", "lm_head."},
};
// Llama's are the same.
constexpr NamePair kMistralNames[] = {
    {"embedding.", "model.embed_tokens."},
    {"layers.#.norm.", "model.layers.#.input_layernorm."},
    {"layers.#.attention.", "model.layers.#.self_attn."},
    {"layers.#.mlp.norm.", "model.layers.#.post_attention_layernorm."},
    {"layers.#.mlp.", "model.layers.#.mlp."},
    {"norm.", "model.norm."},
    {"head.", "lm_head."},
};

// Typed access to the fields of a config.json; null counts as absent.
class Fields {
 public:
  Fields(const base::Json& json, std::string_view subject) : json_(json), subject_(subject) {}

  const base::Json* find(std::string_view name) const {
    const auto it = json_.find(name);
    return it == json_.end() || it->is_null() ? nullptr : &*it;
  }
  bool holds_null(std::string_view name) const {
    const auto it = json_.find(name);
    return it != json_.end() && it->is_null();
  }
  [[noreturn]] void refuse(std::string_view name, std::string_view requirement,
                           const base::Json* got) const {
    base::fail("{}: {} must be {}, got {}", subject_, name, requirement,
               got == nullptr ? "none" : base::printable(got->dump(), 80));
  }

  // A width, a depth or a count; the bound keeps products of two within 64 bits.
  int64_t size(std::string_view name, std::optional<int64_t> fallback = {}) const {
    constexpr int64_t kMax = int64_t{1} << 31;
    const base::Json* value = find(name);
    if (value == nullptr && fallback) return *fallback;
    const bool in_range = value != nullptr && value->is_number_integer() &&
                          value->get<double>() >= 1 && value->get<double>() <= double{kMax};
    if (!in_range) refuse(name, "a whole number of at least 1", value);
    return value->get<int64_t>();
  }
  double positive(std::string_view name, double fallback) const {
    const base::Json* value = find(name);
    if (value == nullptr) return fallback;
    if (!value->is_number() || !(value->get<double>() > 0)) refuse(name, "a number above 0", value);
    return value->get<double>();
  }
  bool flag(std::string_view name, bool fallback) const {
    const base::Json* value = find(name);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) refuse(name, "true or false", value);
    return value->get<bool>();
  }
  // A generation setting: where there are several end tokens the first is kept.
  int64_t token(std::string_view name, int64_t fallback) const {
    if (holds_null(name)) return -1;
    const base::Json* value = find(name);
    if (value == nullptr) return fallback;
    if (value->is_array() && !value->empty()) value = &value->front();
    const bool in_range =
        value->is_number_integer() && value->get<double>() >= -1 && value->get<double>() < 0x1p62;
    if (!in_range) refuse(name, "a token id, a list of them or null", value);
    return value->get<int64_t>();
  }

  void require_silu() const {
    const base::Json* value = find("hidden_act");
    if (value != nullptr && *value != "silu" && *value != "swish")
      refuse("hidden_act", "\"silu\"", value);
  }
  // Absent, null, false and {} all leave the mathematics as they are.
  void require_off(std::string_view name) const {
    const base::Json* value = find(name);
    if (value != nullptr && *value != false && !(value->is_structured() && value->empty()))
      refuse(name, "absent or false", value);
  }

 private:
  const base::Json& json_;
  std::string subject_;
};

Config read_mamba(const Fields& fields) {
  fields.require_silu();
  Config c;
  c.pattern = "ssm";
  c.hidden_size = fields.size("hidden_size");
  // transformers lets a stored intermediate_size override expand.
  c.ssm_inner_size = fields.size("intermediate_size", fields.size("expand", 2) * c.hidden_size);
  c.ssm_state_size = fields.size("state_size", 16);
  c.ssm_conv_taps = fields.size("conv_kernel", 4);
  c.ssm_conv_bias = fields.flag("use_conv_bias", true);
  c.ssm_bias = fields.flag("use_bias", false);
  const base::Json* rank = fields.find("time_step_rank");
  const bool automatic = rank == nullptr || *rank == "auto";
  c.ssm_dt_rank = automatic ? (c.hidden_size + 15) / 16 : fields.size("time_step_rank");
  c.norm_eps = fields.positive("layer_norm_epsilon", 1e-5);
  c.tied_embeddings = fields.flag("tie_word_embeddings", true);
  c.bos_token_id = fields.token("bos_token_id", 0);
  c.eos_token_id = fields.token("eos_token_id", 0);
  return c;
}

// Newer files hold the angle's base in rope_parameters, older ones at the top with a rope_scaling
// beside it that is null, or names a type.
double read_rope_theta(const Fields& fields, std::string_view subject) {
  double theta = fields.positive("rope_theta", 10000);
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    const base::Json* value = fields.find(name);
    if (value == nullptr) continue;
    if (!value->is_object()) fields.refuse(name, "an object or null", value);
    const Fields rope(*value, fmt::format("{}: {}", subject, name));
    for (const char* key : {"rope_type", "type"}) {
      const base::Json* type = rope.find(key);
      if (type != nullptr && *type != "default") rope.refuse(key, "\"default\"", type);
    }
    for (const auto& [key, inner] : value->items())
      if (inner.is_object()) rope.refuse(key, "the same for every layer", &inner);
    if (rope.positive("partial_rotary_factor", 1) != 1)
      rope.refuse("partial_rotary_factor", "1", rope.find("partial_rotary_factor"));
    theta = rope.positive("rope_theta", theta);
  }
  return theta;
}

void check_layer_types(const Fields& fields, bool windowed) {
  const base::Json* types = fields.find("layer_types");
  if (types == nullptr) return;
  const char* kind = windowed ? "sliding_attention" : "full_attention";
  const bool same =
      types->is_array() && std::all_of(types->begin(), types->end(),
                                       [&](const base::Json& type) { return type == kind; });
  if (!same) fields.refuse("layer_types", fmt::format("{} in every layer", kind), types);
}

// A Llama is a Mistral without a window; two defaults differ.
Config read_transformer(const Fields& fields, Family family, std::string_view subject) {
  const bool is_llama = family == Family::llama;
  fields.require_silu();
  for (const char* name :
       {"attention_bias", "mlp_bias", "qkv_bias", "use_bias", "use_qk_norm", "rope_interleaved"})
    fields.require_off(name);
  if (is_llama) fields.require_off("sliding_window");
  if (fields.positive("partial_rotary_factor", 1) != 1)
    fields.refuse("partial_rotary_factor", "1", fields.find("partial_rotary_factor"));
  const bool windowed = !is_llama && !fields.holds_null("sliding_window");
  check_layer_types(fields, windowed);
  Config c;
  c.pattern = "attention";
  c.hidden_size = fields.size("hidden_size");
  c.mlp_size = fields.size("intermediate_size");
  c.num_heads = fields.size("num_attention_heads");
  c.num_kv_heads = fields.holds_null("num_key_value_heads")
                       ? c.num_heads
                       : fields.size("num_key_value_heads", is_llama ? c.num_heads : 8);
  c.head_size = fields.size("head_dim", c.hidden_size / c.num_heads);
  c.window = windowed ? fields.size("sliding_window", 4096) : 0;
  c.rope_theta = read_rope_theta(fields, subject);
  c.norm_eps = fields.positive("rms_norm_eps", 1e-6);
  c.tied_embeddings = fields.flag("tie_word_embeddings", false);
  c.bos_token_id = fields.token("bos_token_id", 1);
  c.eos_token_id = fields.token("eos_token_id", 2);
  return c;
}

base::Json token_json(int64_t id) { return id < 0 ? base::Json(nullptr) : base::Json(id); }

void write_mamba(base::Json& json, const Config& c) {
  json["state_size"] = c.ssm_state_size;
  json["expand"] = std::max<int64_t>(1, c.ssm_inner_size / c.hidden_size);
  json["intermediate_size"] = c.ssm_inner_size;
  json["conv_kernel"] = c.ssm_conv_taps;
  json["use_conv_bias"] = c.ssm_conv_bias;
  json["use_bias"] = c.ssm_bias;
  json["time_step_rank"] = c.ssm_dt_rank;
  json["layer_norm_epsilon"] = c.norm_eps;
  json["residual_in_fp32"] = true;
}

void write_mistral(base::Json& json, const Config& c) {
  json["intermediate_size"] = c.mlp_size;
  json["num_attention_heads"] = c.num_heads;
  json["num_key_value_heads"] = c.num_kv_heads;
  json["head_dim"] = c.head_size;
  json["sliding_window"] = c.window > 0 ? base::Json(c.window) : base::Json(nullptr);
  // At the top for readers of before rope_parameters, and inside it for those of today.
  json["rope_theta"] = c.rope_theta;
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", c.rope_theta}};
  json["max_position_embeddings"] = 131072;
  json["rms_norm_eps"] = c.norm_eps;
}

std::string_view torch_name(Dtype dtype) {
  return dtype == Dtype::bf16 ? "bfloat16" : dtype == Dtype::f16 ? "float16" : "float32";
}

}  // namespace

std::string_view model_type_of(Family family) {
  return family == Family::mamba ? "mamba" : family == Family::mistral ? "mistral" : "llama";
}

ForeignModel from_hugging_face(const base::Json& json, std::string_view subject) {
  constexpr std::string_view kTypes = "\"mamba\", \"mistral\" or \"llama\"";
  base::require(json.is_object(), "{}: must be a JSON object, got {}", subject, json.type_name());
  const Fields fields(json, subject);
  const base::Json* type = fields.find("model_type");
  base::require(type == nullptr || *type != "bmojo",
                "{}: model_type must be {}, got \"bmojo\"; it needs no import", subject, kTypes);
  std::optional<Family> family;
  for (const auto known : {Family::mamba, Family::mistral, Family::llama})
    if (type != nullptr && *type == model_type_of(known)) family = known;
  if (!family) fields.refuse("model_type", kTypes, type);
  for (const char* name : {"quantization_config", "per_layer_config"}) fields.require_off(name);

  Config config =
      *family == Family::mamba ? read_mamba(fields) : read_transformer(fields, *family, subject);
  config.vocab_size = fields.size("vocab_size");
  config.num_layers = fields.size("num_hidden_layers");
  validate(config);
  return {*family, config};
}

std::optional<Family> family_of(const Config& config) {
  if (!config.has_attention() && config.mlp_size == 0) return Family::mamba;
  if (!config.has_ssm() && config.mlp_size > 0 && config.rope_theta > 0) return Family::mistral;
  return std::nullopt;
}

base::Json to_hugging_face(const Config& config, Family family, Dtype dtype) {
  const bool mamba = family == Family::mamba;
  base::Json json;
  json["architectures"] = {mamba ? "MambaForCausalLM" : "MistralForCausalLM"};
  json["model_type"] = model_type_of(family);
  json["vocab_size"] = config.vocab_size;
  json["hidden_size"] = config.hidden_size;
  json["num_hidden_layers"] = config.num_layers;
  json["hidden_act"] = "silu";
  mamba ? write_mamba(json, config) : write_mistral(json, config);
  json["tie_word_embeddings"] = config.tied_embeddings;
  json["bos_token_id"] = token_json(config.bos_token_id);
  json["eos_token_id"] = token_json(config.eos_token_id);
  json["pad_token_id"] = nullptr;
  json["torch_dtype"] = torch_name(dtype);
  return json;
}

std::string hugging_face_name(Family family, std::string_view native) {
  std::string name(native), layer;
  if (name.starts_with("layers.")) {
    const size_t begin = 7, end = name.find('.', begin);
    layer = name.substr(begin, end - begin);
    name.replace(begin, layer.size(), "#");
  }
  const auto names = family == Family::mamba ? std::span<const NamePair>(kMambaNames)
                                             : std::span<const NamePair>(kMistralNames);
  for (const auto& pair : names) {
    if (!name.starts_with(pair.native)) continue;
    name.replace(0, pair.native.size(), pair.hugging_face);
    if (const size_t mark = name.find('#'); mark != name.npos) name.replace(mark, 1, layer);
    return name;
  }
  base::fail("export: tensor {} has no name in a {} model", base::in_quotes(native),
             model_type_of(family));
}

}  // namespace bmojo::model
