// The layer is written twice, with torch and without. Where both use the same products they agree
// bit for bit: hidden states, logits, and what every layer holds. With torch's own products, as
// users run it, they agree to rounding.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <cmath>
#include <cstring>
#include <optional>

#include "bmojo/eval/observer.h"
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
  int with_memory = 0, overflowed = 0, with_odd_heads = 0;
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
    with_odd_heads += config.has_attention() && config.head_size % 2 == 1;
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
  EXPECT_GE(with_odd_heads, 20);
}

// What the engine told of each layer: ε of every token, and M after each piece.
struct Told : eval::Observer {
  struct Layer {
    std::vector<float> innovation;
    std::vector<std::vector<int64_t>> kept;
  };
  std::vector<Layer> layers;

  explicit Told(int64_t num_layers) : layers(static_cast<size_t>(num_layers)) {}
  void on_piece(const eval::PieceTold& piece) override {
    auto& layer = layers[static_cast<size_t>(piece.layer)];
    layer.innovation.insert(layer.innovation.end(), piece.innovation.begin(),
                            piece.innovation.end());
    layer.kept.emplace_back(piece.kept.begin(), piece.kept.end());
  }
};

// Of a piece's row of torch's selections.
std::vector<int64_t> positions_of(const at::Tensor& row) {
  std::vector<int64_t> out(row.const_data_ptr<int64_t>(),
                           row.const_data_ptr<int64_t>() + row.numel());
  std::erase(out, memory::kNowhere);
  return out;
}

std::optional<size_t> differing_layer(const nn::Output& output, const Told& told) {
  for (size_t i = 0; i < told.layers.size(); ++i) {
    const auto& kept = told.layers[i].kept;
    for (size_t piece = 0; piece < kept.size(); ++piece)
      if (positions_of(output.selections[i][static_cast<int64_t>(piece)].contiguous()) !=
          kept[piece])
        return i;
  }
  return {};
}

// How far apart ε lies, relative to the largest, of the tokens that only one of the two keeps.
double gap_at_the_cut(const nn::Output& output, const Told& told, size_t layer) {
  double gap = 0;
  const auto& [innovation, kept] = told.layers[layer];
  for (size_t piece = 0; piece < kept.size(); ++piece) {
    const auto other =
        positions_of(output.selections[layer][static_cast<int64_t>(piece)].contiguous());
    if (other.size() != kept[piece].size()) return INFINITY;
    std::vector<int64_t> apart;
    std::ranges::set_symmetric_difference(other, kept[piece], std::back_inserter(apart));
    if (apart.empty()) continue;
    const auto [low, high] = std::ranges::minmax(
        apart, {}, [&](int64_t p) { return innovation[static_cast<size_t>(p)]; });
    const double between =
        1 - innovation[static_cast<size_t>(low)] / innovation[static_cast<size_t>(high)];
    if (!(between <= gap)) gap = between;  // NaN is no tie
  }
  return gap;
}

// The engine's sets as a selection for torch.
at::Tensor selection_of(const Told::Layer& layer) {
  const auto m = std::ssize(layer.kept.back());
  auto out = at::full({std::ssize(layer.kept), m}, memory::kNowhere, at::kLong);
  for (size_t piece = 0; piece < layer.kept.size(); ++piece)
    std::ranges::copy(layer.kept[piece], out.data_ptr<int64_t>() + static_cast<int64_t>(piece) * m);
  return out;
}

// Largest difference over the largest number.
double relative_error(const at::Tensor& a, const std::vector<float>& b) {
  const auto other = at::from_blob(const_cast<float*>(b.data()), a.sizes(), at::kFloat);
  return ((a - other).abs().max() / a.abs().max()).item<double>();
}

// 1e-4 is promised; sums in another order make some 1e-6 of it. Two selections may differ where ε
// is nearer than 1e-4, in one draw of fifty.
TEST(Native, AgreesWithTorchsOwnProductsToRounding) {
  torch::NoGradGuard no_grad;
  int ties = 0, overflowed = 0;
  double worst = 0;
  for (uint64_t seed = 3000; seed < 3000 + kDraws; ++seed) {
    auto config = test::random_model(seed);
    config.norm_eps = 0.05;  // the norm of a few small outputs would show their rounding enlarged
    const test::TempFolder folder;
    constexpr std::array kTypes = {model::Dtype::f32, model::Dtype::bf16, model::Dtype::f16};
    test::write_strong_checkpoint(config, seed, folder.path(), kTypes[seed % 3]);
    const model::Checkpoint checkpoint(folder.path());
    const auto ids = test::random_ids(config, 20 + static_cast<int64_t>(seed % 60), seed);
    const infer::Model native(checkpoint.tensors, config, {}, 1);
    Told told(config.num_layers);
    infer::State state = native.begin();
    std::vector<float> hidden(ids.size() * static_cast<size_t>(config.hidden_size)),
        logits(ids.size() * static_cast<size_t>(config.vocab_size));
    const infer::Input input{&state, ids};
    native.forward({&input, 1}, hidden.data(), &told);
    native.logits(hidden.data(), std::ssize(ids), logits.data());
    const nn::Model torch_model(config, nn::load_parameters(checkpoint));
    const auto run = [&](const std::vector<at::Tensor>& selections) {
      nn::CallOptions options;
      options.selections = selections;
      return torch_model.forward(torch::tensor(ids, at::kLong).unsqueeze(0), {}, options);
    };
    const auto where = fmt::format("seed {}: {}", seed, test::describe(config));
    auto expected = run({});
    std::vector<at::Tensor> given(told.layers.size());
    bool differs = false;
    while (const auto layer = differing_layer(expected, told)) {
      differs = true;
      ASSERT_FALSE(given[*layer].defined()) << where << ", layer " << *layer;
      ASSERT_LE(gap_at_the_cut(expected, told, *layer), 1e-4) << where << ", layer " << *layer;
      given[*layer] = selection_of(told.layers[*layer]);
      expected = run(given);
    }
    ties += differs;
    if (!differs) {  // the way that ties go is open: the engine's own sets change nothing
      for (size_t i = 0; i < given.size(); ++i)
        if (!told.layers[i].kept.empty()) given[i] = selection_of(told.layers[i]);
      EXPECT_TRUE(at::equal(run(given).hidden, expected.hidden)) << where;
    }
    overflowed += config.has(model::LayerKind::bmojo) && config.eidetic_tokens > 0 &&
                  std::ssize(ids) > config.eidetic_tokens;
    const double error = relative_error(torch_model.logits(expected.hidden)[0], logits);
    EXPECT_LE(error, 1e-4) << where;
    worst = std::max(worst, error);
  }
  EXPECT_LE(ties, static_cast<int>(kDraws) / 50);
  EXPECT_GE(overflowed, 20);
  EXPECT_GT(worst, 0) << "both ran on the same products";
}

}  // namespace
}  // namespace bmojo
