#include "bmojo/model/gguf_config.h"

#include <array>
#include <span>

#include "bmojo/base/error.h"
#include "bmojo/base/printable.h"
#include "bmojo/model/gguf_fields.h"

namespace bmojo::model {
namespace {

struct NamePair {
  std::string_view native, gguf;
};
// Of all but a layer's. Names of layers stand behind "layers.N." here and "blk.N." there.
constexpr NamePair kNames[] = {{"embedding.weight", "token_embd.weight"},
                               {"norm.weight", "output_norm.weight"},
                               {"head.weight", "output.weight"}};
constexpr NamePair kLlamaNames[] = {{"norm.weight", "attn_norm.weight"},
                                    {"attention.q_proj.weight", "attn_q.weight"},
                                    {"attention.k_proj.weight", "attn_k.weight"},
                                    {"attention.v_proj.weight", "attn_v.weight"},
                                    {"attention.o_proj.weight", "attn_output.weight"},
                                    {"mlp.norm.weight", "ffn_norm.weight"},
                                    {"mlp.gate_proj.weight", "ffn_gate.weight"},
                                    {"mlp.up_proj.weight", "ffn_up.weight"},
                                    {"mlp.down_proj.weight", "ffn_down.weight"}};
constexpr NamePair kMambaNames[] = {{"norm.weight", "attn_norm.weight"},
                                    {"ssm.in_proj.weight", "ssm_in.weight"},
                                    {"ssm.conv1d.weight", "ssm_conv1d.weight"},
                                    {"ssm.conv1d.bias", "ssm_conv1d.bias"},
                                    {"ssm.x_proj.weight", "ssm_x.weight"},
                                    {"ssm.dt_proj.weight", "ssm_dt.weight"},
                                    {"ssm.dt_proj.bias", "ssm_dt.bias"},
                                    {"ssm.A_log", "ssm_a"},
                                    {"ssm.D", "ssm_d"},
                                    {"ssm.out_proj.weight", "ssm_out.weight"}};

// Keys of one architecture, which stand behind its name.
struct Keys {
  const GgufFields& fields;
  std::string architecture;

  std::string operator()(std::string_view key) const {
    return fmt::format("{}.{}", architecture, key);
  }
  void require_zero(std::string_view key) const {
    if (fields.integer((*this)(key)).value_or(0) != 0) fields.refuse((*this)(key), "absent or 0");
  }
  void require_flag(std::string_view key, bool needed) const {
    if (fields.flag((*this)(key)).value_or(needed) != needed)
      fields.refuse((*this)(key), fmt::format("absent or {}", needed));
  }
  void require_one(std::string_view key) const {
    if (fields.number((*this)(key)).value_or(1) != 1) fields.refuse((*this)(key), "absent or 1");
  }
  void require_equal(std::string_view key, int64_t needed) const {
    if (fields.integer((*this)(key)).value_or(needed) != needed)
      fields.refuse((*this)(key), fmt::to_string(needed));
  }
};

// Positions must be turned as they come: with another scaling the model is another one.
void check_rope_scaling(const Keys& key) {
  const auto type = key("rope.scaling.type");
  if (key.fields.text(type).value_or("none") != "none") key.fields.refuse(type, "absent or 'none'");
  for (const char* name : {"rope.scaling.factor", "rope.scaling.attn_factor", "rope.scale_linear"})
    key.require_one(name);
  key.fields.integer(key("rope.scaling.original_context_length"));  // of no effect without a type
  key.require_flag("rope.scaling.finetuned", false);
}

Config read_llama(const Keys& key) {
  const auto& fields = key.fields;
  for (const char* name : {"expert_count", "expert_used_count", "expert_feed_forward_length"})
    key.require_zero(name);
  key.require_flag("use_parallel_residual", false);
  key.require_flag("attention.causal", true);
  check_rope_scaling(key);
  Config c;
  c.pattern = "attention";
  c.hidden_size = fields.size(key("embedding_length"));
  c.mlp_size = fields.size(key("feed_forward_length"));
  c.num_heads = fields.size(key("attention.head_count"));
  c.num_kv_heads = fields.size(key("attention.head_count_kv"), c.num_heads);
  c.head_size = fields.size(key("attention.key_length"), c.hidden_size / c.num_heads);
  key.require_equal("attention.value_length", c.head_size);
  key.require_equal("rope.dimension_count", c.head_size);
  const auto window = key("attention.sliding_window");
  c.window = fields.integer(window).value_or(0) == 0 ? 0 : fields.size(window);
  c.rope_theta = fields.positive(key("rope.freq_base"), 10000);
  return c;
}

Config read_mamba(const Keys& key, const GgufHeader& header) {
  const auto& fields = key.fields;
  // Written by converters though a Mamba has neither.
  for (const char* name :
       {"feed_forward_length", "attention.head_count", "attention.head_count_kv"})
    key.require_zero(name);
  key.require_flag("ssm.dt_b_c_rms", false);
  Config c;
  c.pattern = "ssm";
  c.hidden_size = fields.size(key("embedding_length"));
  c.ssm_conv_taps = fields.size(key("ssm.conv_kernel"));
  c.ssm_inner_size = fields.size(key("ssm.inner_size"));
  c.ssm_state_size = fields.size(key("ssm.state_size"));
  c.ssm_dt_rank = fields.size(key("ssm.time_step_rank"));
  c.ssm_conv_bias = header.find_tensor("blk.0.ssm_conv1d.bias") != nullptr;
  return c;
}

GgufFamily family_of(const GgufFields& fields) {
  const auto architecture = fields.text("general.architecture");
  for (const auto family : {GgufFamily::llama, GgufFamily::mamba})
    if (architecture == name_of(family)) return family;
  fields.refuse("general.architecture", "'llama' or 'mamba'");
}

// Token ids are those of the vocabulary, or none.
int64_t token_of(const GgufFields& fields, std::string_view key, int64_t vocab_size) {
  const auto id = fields.integer(key);
  if (id && (*id < 0 || *id >= vocab_size))
    fields.refuse(key, fmt::format("a token id below {}", vocab_size));
  return id.value_or(-1);
}

// The embedding says how many tokens there are; whatever else does must agree.
int64_t read_vocab_size(const Keys& key, const GgufHeader& header, int64_t hidden_size) {
  const auto& fields = key.fields;
  const auto name = gguf_name(GgufFamily::llama, "embedding.weight");
  const GgufTensor* embedding = header.find_tensor(name);
  base::require(embedding != nullptr, "{}: tensor '{}' is missing", fields.subject(), name);
  base::require(embedding->shape.size() == 2 && embedding->shape[1] == hidden_size,
                "{}: tensor '{}' must have rows of {}, got {}", fields.subject(), name, hidden_size,
                to_string(embedding->shape));
  const int64_t size = embedding->shape[0];
  key.require_equal("vocab_size", size);
  const auto tokens = fields.array("tokenizer.ggml.tokens", GgufKind::string);
  base::require(tokens == nullptr || tokens->count == static_cast<uint64_t>(size),
                "{}: tokenizer.ggml.tokens must be {}, as tensor '{}' has rows, got {}",
                fields.subject(), size, name, tokens == nullptr ? 0 : tokens->count);
  return size;
}

}  // namespace

std::string_view name_of(GgufFamily family) {
  return family == GgufFamily::llama ? "llama" : "mamba";
}

GgufModel model_of_gguf(const GgufHeader& header, const std::string& subject) {
  const GgufFields fields(header, subject);
  const auto family = family_of(fields);
  if (fields.integer("split.count").value_or(1) > 1)
    fields.refuse("split.count", "1: a file that is whole");
  const Keys key{fields, std::string(name_of(family))};
  Config c = family == GgufFamily::llama ? read_llama(key) : read_mamba(key, header);
  c.num_layers = fields.size(key("block_count"));
  // So that no more is asked for than the file can hold.
  base::require(c.num_layers <= std::ssize(header.tensors),
                "{}: {} must be at most the number of tensors, {}, got {}", subject,
                key("block_count"), header.tensors.size(), c.num_layers);
  c.norm_eps = fields.positive(key("attention.layer_norm_rms_epsilon"));
  c.vocab_size = read_vocab_size(key, header, c.hidden_size);
  c.tied_embeddings = header.find_tensor(gguf_name(family, "head.weight")) == nullptr;
  c.bos_token_id = token_of(fields, "tokenizer.ggml.bos_token_id", c.vocab_size);
  c.eos_token_id = token_of(fields, "tokenizer.ggml.eos_token_id", c.vocab_size);
  fields.integer(key("context_length"));  // there is no table of positions
  fields.refuse_unknown(key.architecture + ".");
  validate(c);
  return {family, c};
}

std::string gguf_name(GgufFamily family, std::string_view native) {
  for (const auto& pair : kNames)
    if (pair.native == native) return std::string(pair.gguf);
  constexpr std::string_view kLayers = "layers.";
  const size_t end = native.find('.', kLayers.size());
  const auto names = family == GgufFamily::llama ? std::span<const NamePair>(kLlamaNames)
                                                 : std::span<const NamePair>(kMambaNames);
  for (const auto& pair : names)
    if (native.starts_with(kLayers) && native.substr(end + 1) == pair.native)
      return fmt::format("blk.{}.{}", native.substr(kLayers.size(), end - kLayers.size()),
                         pair.gguf);
  base::fail("import: tensor {} has no name in a {} file", base::in_quotes(native),
             name_of(family));
}

}  // namespace bmojo::model
