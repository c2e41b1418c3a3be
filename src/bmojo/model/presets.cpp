#include <algorithm>
#include <array>

#include "bmojo/base/error.h"
#include "bmojo/model/config.h"

namespace bmojo::model {
namespace {

// Depth and MLP width per family are chosen so that all families of a size have the same number of
// parameters outside the embedding, to 1 %. Mamba's depth sets the number: it has no width left to
// tune.
struct Depth {
  int64_t num_layers, mlp_size;
};
struct Size {
  std::string_view name;
  int64_t hidden_size, num_heads, head_size;
  int64_t mamba_layers;
  Depth transformer, bmojo, hybrid;
};
constexpr std::array kSizes = {
    Size{"tiny", 128, 4, 32, 8, {4, 496}, {4, 352}, {4, 400}},
    Size{"130m", 768, 12, 64, 28, {16, 2240}, {14, 1824}, {14, 2144}},
    Size{"370m", 1024, 16, 64, 51, {32, 2592}, {24, 2688}, {28, 2432}},
    Size{"790m", 1536, 24, 64, 50, {32, 3776}, {24, 3840}, {28, 3520}},
    Size{"1.4b", 2048, 32, 64, 50, {32, 5024}, {24, 5120}, {28, 4672}},
};
constexpr std::array<std::string_view, 6> kFamilies = {"bmojo", "bmojo-paper", "bmojo-f",
                                                       "mamba", "transformer", "hybrid"};

// Mamba's proportions: 16 states, 4 taps, dt rank D / 16. A layer that is nothing but an SSM has
// E = 2 D; beside attention and an MLP, E = D.
void add_ssm(Config& c, int64_t expand) {
  c.ssm_inner_size = expand * c.hidden_size;
  c.ssm_state_size = 16;
  c.ssm_conv_taps = 4;
  c.ssm_dt_rank = (c.hidden_size + 15) / 16;
}

void add_attention(Config& c, const Size& size, int64_t window) {
  c.num_heads = size.num_heads;
  c.num_kv_heads = size.num_heads / 4;
  c.head_size = size.head_size;
  c.window = window;
}

void set_depth(Config& c, Depth depth) {
  c.num_layers = depth.num_layers;
  c.mlp_size = depth.mlp_size;
}

Config build(std::string_view family, const Size& size) {
  Config c;
  c.vocab_size = 32000;
  c.hidden_size = size.hidden_size;
  c.bos_token_id = 1;
  c.eos_token_id = 2;
  if (family == "mamba") {
    c.pattern = "ssm";
    set_depth(c, {size.mamba_layers, 0});
    add_ssm(c, 2);
  } else if (family == "transformer") {
    c.pattern = "attention";
    set_depth(c, size.transformer);
    add_attention(c, size, 0);
    c.rope_theta = 10000;
  } else if (family == "hybrid") {
    c.pattern = "ssm,attention";
    set_depth(c, size.hybrid);
    add_ssm(c, 2);
    add_attention(c, size, 512);
  } else {
    set_depth(c, size.bmojo);
    add_ssm(c, 1);
    add_attention(c, size, 512);
    c.fading_tokens = 16;
    c.eidetic_tokens = family == "bmojo-f" ? 0 : 64;
    c.innovation_bias = family == "bmojo";
    c.fading_residual = family != "bmojo-paper";  // with neither, the layer is the paper's
  }
  return c;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const auto family : kFamilies)
    for (const auto& size : kSizes) names.push_back(fmt::format("{}-{}", family, size.name));
  return names;
}

Config preset(std::string_view name) {
  for (const auto family : kFamilies)
    for (const auto& size : kSizes)
      if (name == fmt::format("{}-{}", family, size.name)) return build(family, size);
  base::fail("--preset: '{}' is not known; bmojo config --list names them all", name);
}

}  // namespace bmojo::model
