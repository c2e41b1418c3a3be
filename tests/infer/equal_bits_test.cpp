#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>

#include "bmojo/base/error.h"
#include "bmojo/infer/model.h"
#include "bmojo/kernels/cpu.h"
#include "tests/infer/support.h"
#include "tests/temp_folder.h"

// Whole = segments = steps = batched, for any number of threads and every instruction set, bit for
// bit: logits and everything that a state holds.

namespace bmojo::infer {
namespace {

using test::difference, test::Draw, test::read, test::Read;

constexpr uint64_t kDraws = 300;

// The draw's text beside neighbours at other positions; all advance in uneven parts.
Read read_batched(const Model& model, Draw& draw) {
  const auto D = static_cast<size_t>(draw.config.hidden_size);
  std::vector<std::vector<int64_t>> texts = {draw.ids};
  std::vector<State> states = {model.begin()};
  for (size_t i = 0, count = 1 + draw.random.below(4); i < count; ++i) {
    texts.push_back(test::random_ids(draw.config, 100, draw.seed * 10 + i));
    const std::vector<int64_t> start(texts.back().begin(),
                                     texts.back().begin() + static_cast<ptrdiff_t>(i * 7));
    states.push_back(read(model, start).state);
  }
  std::vector<float> hidden, own;
  for (size_t done = 0; done < draw.ids.size();) {
    const size_t count = std::min<size_t>(draw.ids.size() - done, 1 + draw.random.below(9));
    std::vector<Input> inputs = {{&states[0], std::span(texts[0]).subspan(done, count)}};
    size_t total = count;
    for (size_t i = 1; i < states.size(); ++i) {
      const auto at = static_cast<size_t>(states[i].position);
      const size_t n = std::min<size_t>(texts[i].size() - at, draw.random.below(6));
      inputs.push_back({&states[i], std::span(texts[i]).subspan(at, n)});
      total += n;
    }
    hidden.resize(total * D);
    model.forward(inputs, hidden.data());
    own.insert(own.end(), hidden.begin(), hidden.begin() + static_cast<ptrdiff_t>(count * D));
    done += count;
  }
  Read out{std::vector<float>(draw.ids.size() * static_cast<size_t>(draw.config.vocab_size)),
           states[0]};
  model.logits(own.data(), std::ssize(draw.ids), out.logits.data());
  return out;
}

void expect_equal_bits(Draw& draw) {
  const auto one = draw.model(1), two = draw.model(2);
  const auto whole = read(one, draw.ids);
  const std::vector<size_t> steps(draw.ids.size(), 1);
  EXPECT_EQ(difference(read(one, draw.ids, draw.parts), whole), "") << "split, " << draw.text();
  EXPECT_EQ(difference(read(one, draw.ids, steps), whole), "") << "steps, " << draw.text();
  EXPECT_EQ(difference(read(two, draw.ids, draw.parts), whole), "")
      << "two threads, " << draw.text();
  EXPECT_EQ(difference(read_batched(two, draw), whole), "") << "batched, " << draw.text();
  auto parts = draw.parts;  // and a few steps
  parts.insert(parts.begin() + 1, 3, 1);
  for (const auto& target : kernels::simd_targets()) {
    kernels::use_target(target);
    EXPECT_EQ(difference(read(draw.model(1), draw.ids, parts), whole), "")
        << target << ", " << draw.text();
  }
  kernels::use_target("");
}

// How far the layers of a draw are from a mean of what they see.
struct Strength : eval::Observer {
  std::vector<std::vector<float>> innovation;  // [layers]
  std::vector<double> largest;  // weight, of every head and query with 4 keys or more

  void on_piece(const eval::PieceTold& piece) override {
    auto& all = innovation[static_cast<size_t>(piece.layer)];
    all.insert(all.end(), piece.innovation.begin(), piece.innovation.end());
  }
  bool asks_attention() const override { return true; }
  bool asks_attention(int64_t, int64_t) const override { return true; }
  void on_attention(const eval::AttentionTold& told) override {
    const auto n = told.keys.size();
    for (size_t h = 0; n >= 4 && h < static_cast<size_t>(told.num_heads); ++h)
      largest.push_back(std::ranges::max(told.weight.subspan(h * n, n)));
  }
};

// With fresh weights attention is nearly a mean, and a wrong key would hardly show. And what is
// hard to get right has to occur.
TEST(EqualBitsToo, DrawsAreStrongAndReachTheCorners) {
  int with_one = 0, with_more_fading = 0, overflowing = 0, with_odd_heads = 0;
  std::vector<double> spans, weights;  // max / min of ε in each layer; largest weights of all draws
  for (uint64_t seed = 0; seed < kDraws; seed += 3) {
    const Draw draw(seed);
    const auto& c = draw.config;
    const bool remembers = c.has(model::LayerKind::bmojo);
    with_one += remembers && c.window == 1;
    with_more_fading += remembers && c.fading_tokens > c.window;
    overflowing += remembers && c.eidetic_tokens > 0 && std::ssize(draw.ids) > c.eidetic_tokens;
    with_odd_heads += c.has_attention() && c.head_size % 2 == 1;
    const auto model = draw.model(1);
    Strength strength;
    strength.innovation.resize(static_cast<size_t>(draw.config.num_layers));
    auto state = model.begin();
    std::vector<float> hidden(draw.ids.size() * static_cast<size_t>(draw.config.hidden_size));
    const Input input{&state, draw.ids};
    model.forward({&input, 1}, hidden.data(), &strength);
    for (const auto& epsilon : strength.innovation)
      if (epsilon.size() >= 16)
        spans.push_back(std::ranges::max(epsilon) / std::ranges::min(epsilon));
    weights.insert(weights.end(), strength.largest.begin(), strength.largest.end());
  }
  std::ranges::sort(spans);
  std::ranges::sort(weights);
  EXPECT_GE(spans[spans.size() / 10], 10) << "ε of nine layers in ten";
  EXPECT_GE(weights[weights.size() / 2], 0.3) << "half of the queries";
  EXPECT_GE(with_one, 10);
  EXPECT_GE(with_more_fading, 10);
  EXPECT_GE(overflowing, 10);
  EXPECT_GE(with_odd_heads, 10);
}

class EqualBits : public testing::TestWithParam<uint64_t> {};

TEST_P(EqualBits, WholeIsSplitIsStepsIsBatched) {
  for (uint64_t seed = GetParam(); seed < kDraws; seed += 10) {
    if (!test::is_asked_for(seed)) continue;
    Draw draw(seed);
    expect_equal_bits(draw);
  }
}

INSTANTIATE_TEST_SUITE_P(Draws, EqualBits, testing::Range<uint64_t>(0, 10));

// More than 512 tokens in a call, sums over more than 512 products, hundreds of rows.
TEST(EqualBitsToo, AlsoOfWideModelsAndLongTexts) {
  for (uint64_t seed = 2000; seed < 2040; ++seed) {
    if (!test::is_asked_for(seed)) continue;
    Draw draw(seed, test::random_wide_model(seed), 520, 400, 700);
    expect_equal_bits(draw);
  }
}

// A library's caller may round upward, say.
TEST(EqualBitsToo, WhateverTheCallersRoundingIs) {
  for (uint64_t seed = 1000; seed < 1020; ++seed) {
    if (!test::is_asked_for(seed)) continue;
    const Draw draw(seed);
    const auto nearest = read(draw.model(2), draw.ids, draw.parts);
    for (const int mode : {FE_UPWARD, FE_TOWARDZERO}) {
      std::fesetround(mode);
      const auto result = read(draw.model(2), draw.ids, draw.parts);
      const bool is_restored = std::fegetround() == mode;
      std::fesetround(FE_TONEAREST);
      EXPECT_TRUE(is_restored);
      EXPECT_EQ(difference(result, nearest), "") << mode << ", " << draw.text();
    }
  }
}

// A copy of a state goes its own way.
TEST(EqualBitsToo, AForkIsTheSequenceAlone) {
  const Draw draw(5);
  const auto model = draw.model(1);
  const auto left = test::random_ids(draw.config, 60, 1),
             right = test::random_ids(draw.config, 60, 2);
  const auto go_on = [&](State& state, const std::vector<int64_t>& ids) {
    std::vector<float> hidden(ids.size() * static_cast<size_t>(draw.config.hidden_size));
    const Input input{&state, ids};
    model.forward({&input, 1}, hidden.data());
    return hidden;
  };
  auto fork = read(model, left).state, copy = fork;
  go_on(fork, left);
  const auto after = go_on(copy, right);
  auto both = left;
  both.insert(both.end(), right.begin(), right.end());
  auto alone = model.begin();
  const auto whole = go_on(alone, both);
  EXPECT_TRUE(std::equal(after.begin(), after.end(), whole.end() - std::ssize(after)));
}

TEST(EqualBitsToo, IdsOutsideTheVocabularyAreRefused) {
  const Draw draw(5);
  const auto model = draw.model(1);
  auto state = model.begin();
  std::vector<float> hidden(static_cast<size_t>(draw.config.hidden_size));
  for (const int64_t id : {int64_t{-1}, draw.config.vocab_size}) {
    const Input input{&state, {&id, 1}};
    EXPECT_THROW(model.forward({&input, 1}, hidden.data()), base::Error);
  }
  EXPECT_EQ(state.position, 0);
}

}  // namespace
}  // namespace bmojo::infer
