// The layer is written twice, with torch and without. Where both use the same products they agree
// bit for bit: hidden states, logits, and what every layer holds.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>

#include "bmojo/infer/model.h"
#include "bmojo/nn/model.h"
#include "bmojo/nn/ops/product.h"
#include "tests/infer/support.h"
#include "tests/temp_folder.h"

namespace bmojo {
namespace {

constexpr uint64_t kDraws = 150;

bool same_bits(const at::Tensor& a, const std::vector<float>& b) {
  const auto dense = a.contiguous();
  return dense.numel() == std::ssize(b) &&
         std::memcmp(dense.data_ptr<float>(), b.data(), b.size() * sizeof(float)) == 0;
}

struct Native {
  std::vector<float> hidden, logits;
  infer::State state;
};

Native read_natively(const infer::Model& model, const std::vector<int64_t>& ids) {
  const auto& c = model.config();
  Native out{std::vector<float>(ids.size() * static_cast<size_t>(c.hidden_size)),
             std::vector<float>(ids.size() * static_cast<size_t>(c.vocab_size)), model.begin()};
  const infer::Input input{&out.state, ids};
  model.forward({&input, 1}, out.hidden.data());
  model.logits(out.hidden.data(), std::ssize(ids), out.logits.data());
  return out;
}

// The eidetic sets of a layer by position; places of the torch engine that hold nothing are left
// out.
std::vector<int64_t> members(const at::Tensor& positions) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < positions.size(1); ++i)
    if (const auto p = positions[0][i].item<int64_t>(); p != memory::kNowhere) out.push_back(p);
  return out;
}

TEST(Native, AgreesWithTorchBitForBit) {
  torch::NoGradGuard no_grad;
  const nn::EveryProduct every_product_is_ours;
  int with_memory = 0, overflowed = 0;
  for (uint64_t seed = 2000; seed < 2000 + kDraws; ++seed) {
    const auto config = test::random_model(seed);
    const test::TempFolder folder;
    test::write_strong_checkpoint(config, seed, folder.path());
    const model::Checkpoint checkpoint(folder.path());
    const auto ids = test::random_ids(config, 2 + static_cast<int64_t>(seed % 50), seed);
    const nn::Model torch_model(config, nn::load_parameters(checkpoint));
    const auto expected = torch_model.forward(torch::tensor(ids, at::kLong).unsqueeze(0));
    const auto got = read_natively(infer::Model(checkpoint.tensors, config, {}, 1), ids);
    const auto where = fmt::format("seed {}: {}", seed, test::describe(config));
    ASSERT_TRUE(same_bits(expected.hidden, got.hidden)) << where;
    ASSERT_TRUE(same_bits(torch_model.logits(expected.hidden), got.logits)) << where;
    for (size_t i = 0; i < got.state.layers.size(); ++i) {
      const auto& torch_layer = expected.state.layers[i];
      const auto& layer = got.state.layers[i];
      if (torch_layer.ssm.defined()) {
        const auto by_state = torch_layer.ssm.transpose(-1, -2).contiguous();  // the engine's
        EXPECT_TRUE(same_bits(by_state, layer.ssm)) << where << ", layer " << i;
      }
      if (!torch_layer.frozen.position.defined()) continue;
      EXPECT_EQ(members(torch_layer.frozen.position), layer.frozen.position) << where;
      EXPECT_EQ(members(torch_layer.running.position), layer.running.position) << where;
      ++with_memory;
      overflowed += std::ssize(ids) > config.eidetic_tokens;
    }
  }
  // The draws reach what they are meant to.
  EXPECT_GE(with_memory, 60);
  EXPECT_GE(overflowed, 40);
}

}  // namespace
}  // namespace bmojo
