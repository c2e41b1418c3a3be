#pragma once

#include <bmojo/bmojo.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/infer/support.h"

namespace bmojo::test {

namespace api = bmojo::v0;

// A B'MOJO of bytes: 257 ids, of which the last ends a document.
inline model::Config bytes_model() {
  model::Config c = model::preset("bmojo-tiny");
  c.vocab_size = 257;
  c.hidden_size = c.ssm_inner_size = 24;
  c.num_layers = 2;
  c.ssm_state_size = 3;
  c.ssm_dt_rank = 2;
  c.num_heads = 2;
  c.num_kv_heads = 1;
  c.head_size = 8;
  c.window = 8;
  c.fading_tokens = 3;
  c.eidetic_tokens = 5;
  c.mlp_size = 16;
  c.bos_token_id = -1;
  c.eos_token_id = 256;
  model::validate(c);
  return c;
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return same_bits(std::vector(a.begin(), a.end()), std::vector(b.begin(), b.end()));
}

// `count` tokens drawn and read one at a time.
inline std::vector<int64_t> write(api::State& state, const api::Sampler& sampler, int64_t count) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(sampler.draw(state));
    state.read(ids.back());
  }
  return ids;
}

}  // namespace bmojo::test
