// attention_weights() tells what the layer did: each query's weights sum to 1, belong to the keys
// that docs/model.md lets it see, and mix the values to the very output of the layer. What
// attention_part() and attention_share() give for each memory is the sum over its keys.

#include "bmojo/nn/attention_weights.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "bmojo/base/error.h"
#include "bmojo/nn/ops/rows.h"
#include "tests/nn/support.h"

namespace bmojo::nn {
namespace {

using test::describe, test::random_config, test::relative_error, test::strong_parameters;

// A B'MOJO layer and an attention layer whose outputs are x + W_o a and nothing else.
model::Config attention_alone(uint64_t seed) {
  auto config = random_config(seed);
  config.num_layers = 2;
  config.pattern = "bmojo,attention";
  config.fading_residual = false;
  config.mlp_size = 0;
  model::validate(config);
  return config;
}

// One row of a batch: where its documents begin, and what was computed of the present one.
struct Row {
  std::vector<int64_t> ids, documents, positions;
  size_t next = 0;                 // token to be read
  std::vector<double> innovation;  // of the present document
};

Row random_row(test::Random& random, int64_t vocab_size, int64_t length) {
  Row row;
  int64_t document = 0, position = 0;
  for (int64_t i = 0; i < length; ++i) {
    if (i > 0 && random.in(0, 24) == 0) ++document, position = 0;
    row.ids.push_back(random.in(0, vocab_size - 1));
    row.documents.push_back(document);
    row.positions.push_back(position++);
  }
  return row;
}

// The keys of a query by their definition, as (memory, position).
using Keys = std::vector<std::pair<Memory, int64_t>>;
Keys expected_keys(const model::Config& c, model::LayerKind kind,
                   const std::vector<double>& innovation, int64_t t) {
  Keys keys;
  const int64_t w = c.window, s = t / w * w;
  const auto add = [&](Memory memory, int64_t first, int64_t last) {
    for (int64_t p = std::max<int64_t>(first, 0); p <= last; ++p) keys.emplace_back(memory, p);
  };
  if (kind == model::LayerKind::bmojo) {
    std::vector<int64_t> rank(s);
    std::iota(rank.begin(), rank.end(), 0);
    std::ranges::stable_sort(rank,
                             [&](int64_t a, int64_t b) { return innovation[a] > innovation[b]; });
    rank.resize(std::min<int64_t>(s, c.eidetic_tokens));
    std::ranges::sort(rank);
    for (const auto p : rank)
      if (p <= t - w) keys.emplace_back(Memory::eidetic, p);
    if (c.fading_sliding())
      add(Memory::fading, t - w - c.fading_tokens + 1, t - w);
    else
      add(Memory::fading, s - c.fading_tokens, s - 1);
  }
  add(Memory::window, t - w + 1, t);
  return keys;
}

// What the weights make of the values: W_o a.
at::Tensor mixed(const AttentionWeights& attention, const at::Tensor& W_o) {
  const int64_t H = attention.weight.size(0), G = attention.value.size(1);
  const auto value = attention.value.repeat_interleave(H / G, 1);  // [n, H, d]
  return at::mv(W_o, (attention.weight.t().unsqueeze(-1) * value).sum(0).flatten());
}

// Some of the next tokens of every row; the first row's are as many as the call is long.
struct Call {
  Sequences rows;
  at::Tensor ids;  // [B, L]
};
Call next_call(std::vector<Row>& rows, int64_t most, test::Random& random) {
  const auto left = [](const Row& row) { return static_cast<int64_t>(row.ids.size() - row.next); };
  const int64_t B = std::ssize(rows), L = std::min(random.in(1, most), left(rows[0]));
  Call call{{B, L, {}, std::vector<int64_t>(B * L, 0)}, at::zeros({B, L}, at::kLong)};
  for (int64_t b = 0; b < B; ++b) {
    const auto& row = rows[b];
    const int64_t count = b == 0 ? L : random.in(0, std::min(L, left(row)));
    call.rows.lengths.push_back(count);
    std::copy_n(row.ids.begin() + row.next, count, call.ids.data_ptr<int64_t>() + b * L);
    std::copy_n(row.documents.begin() + row.next, count, call.rows.documents.begin() + b * L);
  }
  return call;
}

struct Checked {
  const model::Config& config;
  model::LayerKind kind;
  at::Tensor W_o;
  double bound;

  // Every query of a call.
  void check(const at::Tensor& x, const LayerOutput& out, const Layout& layout,
             std::vector<Row>& rows) const {
    std::vector<at::Tensor> actual, expected;
    const auto parts = parts_of(out.attention, layout.queries);
    for (int64_t b = 0; b < layout.batch; ++b)
      for (int64_t i = 0; i < layout.lengths[b]; ++i) {
        auto& row = rows[b];
        const int64_t t = row.positions[row.next++];
        if (t == 0) row.innovation.clear();
        if (out.innovation.defined()) row.innovation.push_back(out.innovation[b][i].item<double>());
        const auto attention = attention_weights(out.attention, layout, b, i);
        Keys keys;
        for (const auto& key : attention.keys) keys.emplace_back(key.memory, key.position);
        ASSERT_EQ(keys, expected_keys(config, kind, row.innovation, t)) << "position " << t;
        ASSERT_EQ(attention.weight.size(1), std::ssize(keys));
        EXPECT_LT((attention.weight.sum(-1) - 1).abs().max().item<double>(), bound);
        actual.push_back(mixed(attention, W_o));
        expected.push_back((out.x - x)[b][i]);
        check_parts(parts, attention, b * layout.length + i);
      }
    EXPECT_LT(relative_error(at::stack(actual), at::stack(expected)), bound);
    EXPECT_LT(relative_error(parts.value[0] + parts.value[1] + parts.value[2], out.attention.mixed),
              bound);
  }

  // What each memory adds, of all tokens at once.
  struct Parts {
    at::Tensor value[3], share[3];  // [T, H, d], [T, H]
  };
  static Parts parts_of(const AttentionTrace& in, const QueryRuns& runs) {
    Parts parts;
    for (const auto memory : {Memory::eidetic, Memory::fading, Memory::window}) {
      parts.value[static_cast<size_t>(memory)] = attention_part(in, runs, memory);
      parts.share[static_cast<size_t>(memory)] = attention_share(in, runs, memory);
    }
    return parts;
  }

  // The same of one token, key by key.
  void check_parts(const Parts& parts, const AttentionWeights& attention, int64_t token) const {
    const int64_t H = attention.weight.size(0), G = attention.value.size(1);
    const auto value = attention.value.repeat_interleave(H / G, 1);  // [n, H, d]
    for (size_t memory = 0; memory < 3; ++memory) {
      auto sum = at::zeros_like(value[0]);
      auto share = at::zeros_like(attention.weight.select(1, 0));
      for (size_t j = 0; j < attention.keys.size(); ++j) {
        if (static_cast<size_t>(attention.keys[j].memory) != memory) continue;
        const auto weight = attention.weight.select(1, static_cast<int64_t>(j));  // [H]
        sum += weight.unsqueeze(-1) * value[static_cast<int64_t>(j)];
        share += weight;
      }
      const auto largest = value.abs().max().item<double>();
      EXPECT_LT((parts.value[memory][token] - sum).abs().max().item<double>(), bound * largest);
      EXPECT_LT((parts.share[memory][token] - share).abs().max().item<double>(), bound);
    }
  }
};

// Two rows of several documents, in calls of any lengths.
void check_layer(const model::Config& config, int64_t index, at::ScalarType type, uint64_t seed,
                 double bound) {
  SCOPED_TRACE(fmt::format("seed {} layer {} {}", seed, index, describe(config)));
  const Model model(config, strong_parameters(config, seed, type));
  const auto& layer = model.layers()[index];
  const auto W_o = model.parameter(fmt::format("layers.{}.attention.o_proj.weight", index));
  const Checked checked{config, config.kind(index), W_o, bound};
  test::Random random(seed);
  std::vector<Row> rows;
  for (int i = 0; i < 2; ++i)
    rows.push_back(random_row(random, config.vocab_size, 20 + 3 * config.window));
  auto state = layer.initial_state(std::ssize(rows));
  Cursor cursor;
  LayerCall kept;
  kept.keep_attention = true;
  while (rows[0].next < rows[0].ids.size()) {
    const auto call = next_call(rows, 2 * config.window + 3, random);
    const auto x = take_rows(model.parameter("embedding.weight"), call.ids.flatten())
                       .unflatten(0, call.ids.sizes());
    const Layout layout(config, call.rows, cursor, x.options());
    const auto out = layer.forward(x, layout, state, kept);
    checked.check(x, out, layout, rows);
    if (testing::Test::HasFatalFailure()) return;
    state = out.state;
    cursor = layout.next;
  }
}

// Double against double, a few hundred operations.
TEST(AttentionWeights, MixTheValuesToTheOutputOfRandomLayers) {
  std::set<std::pair<bool, bool>> drawn;  // sliding, rotary
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const auto config = attention_alone(seed);
    drawn.emplace(config.fading_sliding(), config.rope_theta > 0);
    for (const int64_t layer : {0, 1}) check_layer(config, layer, at::kDouble, seed, 1e-10);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(drawn.size(), 4);
}

// The fused kernel and the plain operations, in fp32 on both sides.
TEST(AttentionWeights, AreThoseOfTheFusedKernel) {
  for (uint64_t seed = 101; seed <= 120; ++seed) {
    check_layer(attention_alone(seed), 0, at::kFloat, seed, 5e-5);
    if (HasFatalFailure()) return;
  }
}

// Nothing is kept, and nothing else changes, where nobody asked.
TEST(AttentionWeights, AreKeptOnRequest) {
  const auto config = attention_alone(7);
  const Model model(config, strong_parameters(config, 7));
  const auto ids = at::arange(5, at::kLong).view({1, 5});
  CallOptions call;
  EXPECT_TRUE(model.forward(ids, {}, call).attentions.empty());
  call.keep_attention = true;
  const auto out = model.forward(ids, {}, call);
  EXPECT_EQ(out.attentions.size(), 2);
  EXPECT_TRUE(test::same_bits(out.hidden, model.forward(ids).hidden));
}

TEST(AttentionWeights, Mistakes) {
  const auto config = attention_alone(7);
  const Model model(config, strong_parameters(config, 7));
  CallOptions call;
  call.keep_attention = true;
  call.lengths = {3, 5};
  const auto out = model.forward(at::zeros({2, 5}, at::kLong), {}, call);
  const auto message = [&](const AttentionTrace& in, int64_t row, int64_t column) -> std::string {
    try {
      attention_weights(in, *out.layout, row, column);
    } catch (const base::Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(out.attentions[0], 1, 4), "");
  EXPECT_EQ(message(out.attentions[0], 0, 3),
            "attention_weights: sequence and column must name a token of the call, got 0 and 3");
  EXPECT_EQ(message(out.attentions[0], 2, 0),
            "attention_weights: sequence and column must name a token of the call, got 2 and 0");
  EXPECT_EQ(message({}, 0, 0), "attention_weights: attention must be kept by its call, got none");
  EXPECT_THROW(attention_part({}, out.layout->queries, Memory::window), base::Error);
  EXPECT_THROW(attention_share({}, out.layout->queries, Memory::window), base::Error);
}

}  // namespace
}  // namespace bmojo::nn
