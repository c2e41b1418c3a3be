// infer_write_models FOLDER: the five models of tests/infer/models, whose logits cli/logits knows
// by their SHA-256. They are committed, not made by the test: the C library's logarithm and cosine,
// which the weights are drawn with, are not the same everywhere.
#include "tests/infer/support.h"

namespace bmojo {
namespace {

model::Config small() {
  model::Config c;
  c.vocab_size = 48;
  c.hidden_size = 24;
  c.num_layers = 2;
  c.ssm_inner_size = 40;
  c.ssm_state_size = 5;
  c.ssm_conv_taps = 4;
  c.ssm_dt_rank = 3;
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.head_size = 10;
  c.window = 8;
  c.rope_theta = 0;
  c.fading_tokens = 5;
  c.eidetic_tokens = 6;
  c.predictor_taps = 4;
  c.mlp_size = 30;
  return c;
}

void write(const std::filesystem::path& folder, model::Config config, uint64_t seed,
           model::Dtype dtype) {
  model::validate(config);
  test::write_strong_checkpoint(config, seed, folder, dtype);
}

void write_all(const std::filesystem::path& folder) {
  write(folder / "bmojo", small(), 1, model::Dtype::f32);
  auto c = small();  // fading rows of more than a window, keys with positions
  c.pattern = "ssm,bmojo";
  c.rope_theta = 100;
  c.window = 5;
  c.fading_mode = "sliding";
  c.fading_tied = false;
  c.fading_tokens = 9;
  c.eidetic_tokens = 3;
  c.innovation_bias = false;
  write(folder / "bmojo-sliding", c, 2, model::Dtype::bf16);
  c = small();
  c.pattern = "ssm";
  c.ssm_bias = true;
  c.mlp_size = 0;
  write(folder / "mamba", c, 3, model::Dtype::f32);
  c = small();
  c.pattern = "attention";
  c.window = 0;
  c.rope_theta = 10000;
  c.tied_embeddings = false;
  write(folder / "transformer", c, 4, model::Dtype::f32);
  c = small();  // a sum of more than one block of 512
  c.pattern = "ssm,attention";
  c.mlp_size = 600;
  write(folder / "hybrid", c, 5, model::Dtype::bf16);
}

}  // namespace
}  // namespace bmojo

int main(int, char** argv) { bmojo::write_all(argv[1]); }
