#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bmojo/base/json.h"

namespace bmojo::model {

enum class LayerKind { bmojo, ssm, attention };

// One model, by one flat list of fields; the list itself stands in config.cpp and is what parses,
// prints and saves. Symbols as in docs/model.md.
struct Config {
  int64_t vocab_size = 0;             // V
  int64_t hidden_size = 0;            // D
  int64_t num_layers = 0;             //
  std::string pattern = "bmojo";      // layer kinds, cycled: "ssm,attention"
  bool tied_embeddings = true;        // output = input embedding
  double norm_eps = 1e-5;             //
  int64_t ssm_inner_size = 0;         // E
  int64_t ssm_state_size = 0;         // N
  int64_t ssm_conv_taps = 0;          // K
  bool ssm_conv_bias = true;          //
  int64_t ssm_dt_rank = 0;            // R
  bool ssm_bias = false;              // biases on the in and out projections
  int64_t num_heads = 0;              // H
  int64_t num_kv_heads = 0;           // G
  int64_t head_size = 0;              // d
  int64_t window = 0;                 // w; 0 = unlimited
  double rope_theta = 0;              // 0 = no positional encoding
  int64_t fading_tokens = 0;          // m_f
  std::string fading_mode = "chunk";  // or "sliding"
  bool fading_tied = true;            // k_f, v_f use W_k, W_v
  int64_t eidetic_tokens = 0;         // m_e; 0 = B'MOJO-F
  std::string eidetic_rule =
      "innovation";             // what is kept; or "first", "recent", "random", "oracle"
  int64_t predictor_taps = 4;   // k
  double predictor_decay = 1;   // gamma
  bool innovation_bias = true;  //
  bool fading_residual = true;  //
  int64_t mlp_size = 0;         // F; 0 = none
  int64_t bos_token_id = -1;    // -1 = none
  int64_t eos_token_id = -1;    //

  LayerKind kind(int64_t layer) const;
  bool has(LayerKind kind) const;
  bool has_ssm() const { return has(LayerKind::bmojo) || has(LayerKind::ssm); }
  bool has_attention() const { return has(LayerKind::bmojo) || has(LayerKind::attention); }
  bool fading_sliding() const { return fading_mode == "sliding"; }

  bool operator==(const Config&) const = default;
};

std::vector<std::string> config_fields();

// Every field by name, with "model_type": "bmojo" first.
base::Json to_json(const Config& config);
// Every field must be there, none may be unknown; validated. Errors start with `subject`.
Config config_from_json(const base::Json& json, std::string_view subject);

// One `key=value`; the value as JSON writes it (true, 512, 1e-5), text without quotes.
void set_field(Config& config, std::string_view assignment);

// Throws Error naming the field and what it must be.
void validate(const Config& config);

// {bmojo, bmojo-f, mamba, transformer, hybrid}-{tiny, 130m, 370m, 790m, 1.4b}
std::vector<std::string> preset_names();
Config preset(std::string_view name);

}  // namespace bmojo::model
