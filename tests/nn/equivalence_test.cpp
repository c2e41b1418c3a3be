// Whole = in segments = one token at a time = batched = packed, in double, where selections agree
// but for ties that no random weights produce.

#include <gtest/gtest.h>

#include "bmojo/nn/ops/fused.h"
#include "tests/nn/support.h"

namespace bmojo::nn {
namespace {

using test::describe, test::expect_same_state, test::Random, test::random_config,
    test::relative_error, test::row_of, test::strong_parameters;

constexpr double kRounding = 1e-9;  // double, two layers deep, sums in another order

// Two layers of random kinds around a B'MOJO.
Model random_model(uint64_t seed) {
  auto config = random_config(seed);
  const char* patterns[] = {"bmojo", "bmojo,ssm", "attention,bmojo", "bmojo,bmojo"};
  config.pattern = patterns[seed % 4];
  config.num_layers = 2;
  return Model(config, strong_parameters(config, seed));
}

at::Tensor random_ids(const Model& model, int64_t batch, int64_t length) {
  return at::randint(model.config().vocab_size, {batch, length}, at::kLong);
}

TEST(Equivalence, EveryTwoWaySplit) {
  torch::NoGradGuard no_grad;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    const auto model = random_model(seed);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, describe(model.config())));
    const int64_t L = 23;
    const auto ids = random_ids(model, 2, L);
    const auto whole = model.forward(ids);
    for (int64_t split = 1; split < L; ++split) {
      SCOPED_TRACE(split);
      const auto first = model.forward(ids.narrow(1, 0, split));
      const auto second = model.forward(ids.narrow(1, split, L - split), first.state);
      EXPECT_LT(relative_error(at::cat({first.hidden, second.hidden}, 1), whole.hidden), kRounding);
      expect_same_state(second.state, whole.state, kRounding);
    }
  }
}

TEST(Equivalence, OneTokenAtATime) {
  torch::NoGradGuard no_grad;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const auto model = random_model(seed);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, describe(model.config())));
    const auto ids = random_ids(model, 1, 37);
    const auto whole = model.forward(ids);
    State state;
    for (int64_t t = 0; t < ids.size(1); ++t) {
      const auto step = model.forward(ids.narrow(1, t, 1), state);
      EXPECT_LT(relative_error(step.hidden, whole.hidden.narrow(1, t, 1)), kRounding) << t;
      state = step.state;
    }
    expect_same_state(state, whole.state, kRounding);
  }
}

// Rows of different lengths, fed in ragged segments: each row as if it were alone.
TEST(Equivalence, BatchedIsAlone) {
  torch::NoGradGuard no_grad;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    const auto model = random_model(seed);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, describe(model.config())));
    Random random(seed);
    const int64_t B = 3;
    State state;
    std::vector<std::vector<at::Tensor>> read(B), hidden(B);
    for (int call = 0; call < 3; ++call) {
      const int64_t L = random.in(1, 13);
      const auto ids = random_ids(model, B, L);
      CallOptions options;
      for (int64_t b = 0; b < B; ++b) options.lengths.push_back(random.in(0, L));
      options.lengths[call] = L;
      const auto out = model.forward(ids, state, options);
      for (int64_t b = 0; b < B; ++b) {
        read[b].push_back(ids[b].narrow(0, 0, options.lengths[b]));
        hidden[b].push_back(out.hidden[b].narrow(0, 0, options.lengths[b]));
      }
      state = out.state;
    }
    for (int64_t b = 0; b < B; ++b) {
      const auto alone = model.forward(at::cat(read[b]).unsqueeze(0));
      EXPECT_LT(relative_error(at::cat(hidden[b]), alone.hidden[0]), kRounding) << "row " << b;
      expect_same_state(row_of(state, b), row_of(alone.state, 0), kRounding);
    }
  }
}

// Documents packed into rows, the rows cut into calls at any place: each document as if alone, and
// what a row carries on is of its last one.
TEST(Equivalence, PackedIsSeparate) {
  torch::NoGradGuard no_grad;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    const auto model = random_model(seed);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, describe(model.config())));
    Random random(seed + 100);
    const int64_t B = 2, L = 41;
    const auto ids = random_ids(model, B, L);
    std::vector<std::vector<int64_t>> begins(B);
    std::vector<int64_t> documents;
    for (int64_t b = 0; b < B; ++b) {
      int64_t id = random.in(0, 5);
      for (int64_t t = 0; t < L; ++t) {
        const bool starts = t == 0 || random.in(0, 9) == 0;
        if (starts) begins[b].push_back(t);
        if (starts) id += random.coin() ? 1 : -3;
        documents.push_back(id);
      }
      begins[b].push_back(L);
    }
    State state;
    std::vector<at::Tensor> hidden;
    for (int64_t at = 0; at < L;) {
      const int64_t n = std::min(L - at, random.in(1, 20));
      CallOptions options;
      for (int64_t b = 0; b < B; ++b)
        for (int64_t t = at; t < at + n; ++t) options.documents.push_back(documents[b * L + t]);
      const auto out = model.forward(ids.narrow(1, at, n), state, options);
      hidden.push_back(out.hidden);
      state = out.state;
      at += n;
    }
    const auto packed = at::cat(hidden, 1);
    for (int64_t b = 0; b < B; ++b)
      for (size_t i = 0; i + 1 < begins[b].size(); ++i) {
        const int64_t from = begins[b][i], count = begins[b][i + 1] - from;
        SCOPED_TRACE(fmt::format("row {}, document at {}", b, from));
        CallOptions named;
        named.documents.assign(count, documents[b * L + from]);
        const auto alone = model.forward(ids[b].narrow(0, from, count).unsqueeze(0), {}, named);
        EXPECT_LT(relative_error(packed[b].narrow(0, from, count), alone.hidden[0]), kRounding);
        if (from + count == L)
          expect_same_state(row_of(state, b), row_of(alone.state, 0), kRounding);
      }
  }
}

TEST(Equivalence, NothingBeforeAChangeMoves) {
  torch::NoGradGuard no_grad;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    const auto model = random_model(seed);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, describe(model.config())));
    const int64_t L = 30;
    const auto ids = random_ids(model, 1, L);
    const auto before = model.forward(ids).hidden;
    for (int64_t t = 0; t < L; ++t) {
      auto changed = ids.clone();
      changed[0][t] = (ids[0][t].item<int64_t>() + 1) % model.config().vocab_size;
      const auto after = model.forward(changed).hidden;
      EXPECT_TRUE(at::equal(after.narrow(1, 0, t), before.narrow(1, 0, t))) << t;
      EXPECT_GT(relative_error(after.narrow(1, t, 1), before.narrow(1, t, 1)), 1e-6) << t;
    }
  }
}

// A given selection replaces the choice, also across a split.
TEST(Equivalence, GivenSelectionIsUsed) {
  torch::NoGradGuard no_grad;
  auto config = random_config(1);
  config.window = 4;
  config.eidetic_tokens = 3;
  config.fading_residual = true;
  const Model model(config, strong_parameters(config, 1));
  const auto ids = random_ids(model, 1, 12);
  const auto free = model.forward(ids);
  EXPECT_EQ(relative_error(model.forward(ids, {}, {{}, {}, free.selections}).hidden, free.hidden),
            0);
  const auto other = torch::tensor({{0, 1, 2}, {1, 4, 6}, {1, 6, 9}}, at::kLong);
  const auto forced = model.forward(ids, {}, {{}, {}, {other}});
  EXPECT_TRUE(at::equal(forced.selections[0], other));
  EXPECT_GT(relative_error(forced.hidden, free.hidden), 1e-6);
  const auto first = model.forward(ids.narrow(1, 0, 8), {}, {{}, {}, {other.narrow(0, 0, 2)}});
  const auto second =
      model.forward(ids.narrow(1, 8, 4), first.state, {{}, {}, {other.narrow(0, 2, 1)}});
  EXPECT_LT(relative_error(second.hidden, forced.hidden.narrow(1, 8, 4)), kRounding);
  const auto impossible = torch::tensor({{0, 1, 2}, {0, 1, 3}, {0, 1, 2}}, at::kLong);
  EXPECT_THROW(model.forward(ids, {}, {{}, {}, {impossible}}), std::runtime_error);
  const ReferenceOnly reference;
  EXPECT_LT(relative_error(model.forward(ids, {}, {{}, {}, {other}}).hidden, forced.hidden),
            kRounding);
  EXPECT_THROW(model.forward(ids, {}, {{}, {}, {impossible}}), std::runtime_error);
}

// As other devices follow it: documents that begin inside a call, calls that begin inside a chunk.
TEST(Equivalence, GivenSelectionIsFollowedByTheReference) {
  torch::NoGradGuard no_grad;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    auto config = random_config(seed);
    config.window = 2 + static_cast<int64_t>(seed % 4);
    config.eidetic_tokens = 1 + static_cast<int64_t>(seed % 3);
    const Model model(config, strong_parameters(config, seed));
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, describe(config)));
    State state, followed;
    for (const int64_t length : {7, 9, 3, 8}) {
      const auto ids = random_ids(model, 2, length);
      CallOptions options;
      for (int64_t i = 0; i < 2 * length; ++i)  // the second row begins a document in each call
        options.documents.push_back(i < length + 4 ? i / length : 100 + length);
      const auto chosen = model.forward(ids, state, options);
      options.selections = chosen.selections;
      const ReferenceOnly reference;
      const auto given = model.forward(ids, followed, options);
      EXPECT_LT(relative_error(given.hidden, chosen.hidden), kRounding);
      expect_same_state(given.state, chosen.state, kRounding);
      state = chosen.state;
      followed = given.state;
    }
  }
}

TEST(Equivalence, TokenIdsAreRemembered) {
  torch::NoGradGuard no_grad;
  auto config = random_config(2);
  config.window = 3;
  config.eidetic_tokens = 4;
  const Model model(config, strong_parameters(config, 2));
  const auto ids = random_ids(model, 2, 17);
  const auto state = model.forward(ids).state.layers[0];
  for (const auto* set : {&state.frozen, &state.running})
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t j = 0; j < 4; ++j)
        EXPECT_EQ(set->token[b][j].item<int64_t>(),
                  ids[b][set->position[b][j].item<int64_t>()].item<int64_t>());
}

}  // namespace
}  // namespace bmojo::nn
