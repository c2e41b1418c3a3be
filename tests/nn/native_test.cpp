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

template <typename Number>
std::vector<Number> first_of(const at::Tensor& x, size_t n) {
  const auto dense = x[0].contiguous();
  return {dense.data_ptr<Number>(), dense.data_ptr<Number>() + n};
}

// Whether the torch engine's rows [1, n, 2, G, d], of which row j is of position_of(j), lie in the
// engine's at row_of(position).
template <typename PositionOf, typename RowOf>
bool same_rows(const at::Tensor& rows, const std::vector<float>& own, PositionOf position_of,
               RowOf row_of) {
  const auto dense = rows[0].contiguous();
  const int64_t n = dense.size(0), size = n == 0 ? 0 : dense.numel() / n;
  for (int64_t j = 0; j < n; ++j) {
    const int64_t p = position_of(j);
    if (p >= 0 && std::memcmp(dense.data_ptr<float>() + j * size, own.data() + row_of(p) * size,
                              static_cast<size_t>(size) * sizeof(float)) != 0)
      return false;
  }
  return true;
}

// Every memory of a layer after t tokens. What lies where is each engine's own: h is [N, E] here
// and [E, N] there, rings here stand by time there.
void expect_same_memories(const nn::LayerState& torch_layer, const infer::LayerState& layer,
                          const infer::MemoryShape& shape, int64_t t, const std::string& where) {
  if (torch_layer.ssm.defined()) {
    EXPECT_TRUE(same_bits(torch_layer.ssm.transpose(-1, -2).contiguous(), layer.ssm)) << where;
    EXPECT_TRUE(same_bits(torch_layer.conv_tail, layer.conv_tail)) << where;
  }
  if (torch_layer.window.defined()) {
    const int64_t w = shape.window.w, rows = torch_layer.window.size(1);
    EXPECT_EQ(rows, shape.window.num_rows(t)) << where;
    EXPECT_TRUE(same_rows(
        torch_layer.window, layer.window, [&](int64_t j) { return t - rows + j; },
        [&](int64_t p) { return p % w; }))
        << where;
  }
  // The engine turns to a new chunk with its first token.
  const auto& fading = shape.fading;
  if (torch_layer.fading.defined() && (fading.sliding || t % fading.w != 0)) {
    EXPECT_TRUE(same_rows(
        torch_layer.fading, layer.fading, [&](int64_t j) { return fading.position_of(j, t); },
        [&](int64_t p) { return fading.sliding ? p % fading.num_rows() : fading.row_of(p, t); }))
        << where;
  }
  if (!torch_layer.frozen.position.defined()) return;
  EXPECT_TRUE(same_bits(torch_layer.outputs, layer.outputs)) << where;
  EXPECT_EQ(members(torch_layer.frozen.position), layer.frozen.position) << where;
  EXPECT_EQ(members(torch_layer.running.position), layer.running.position) << where;
  const size_t held = layer.frozen.position.size(), kept = layer.running.position.size();
  EXPECT_EQ(first_of<float>(torch_layer.frozen.innovation, held), layer.frozen.innovation) << where;
  EXPECT_EQ(first_of<float>(torch_layer.running.innovation, kept), layer.running.innovation)
      << where;
  EXPECT_EQ(first_of<float>(torch_layer.eidetic, layer.eidetic.size()), layer.eidetic) << where;
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
      expect_same_memories(torch_layer, got.state.layers[i],
                           infer::MemoryShape(config, static_cast<int64_t>(i)), std::ssize(ids),
                           fmt::format("{}, layer {}", where, i));
      if (!torch_layer.frozen.position.defined()) continue;
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
