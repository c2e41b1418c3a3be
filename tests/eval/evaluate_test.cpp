// Evaluation on the torch-free engine against a reader that takes one token after the other and
// looks at everything in plain sight.

#include "bmojo/eval/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "bmojo/base/error.h"
#include "bmojo/infer/language_model.h"
#include "tests/eval/support.h"
#include "tests/infer/support.h"

namespace bmojo::eval {
namespace {

constexpr uint64_t kDraws = 60;

std::unique_ptr<LanguageModel> language_model(const test::Draw& draw) {
  auto model = std::make_unique<infer::Model>(model::TensorFolder(draw.folder.path()), draw.config,
                                              std::nullopt, 2);
  return std::make_unique<infer::NativeLanguageModel>(std::move(model),
                                                      [] { return std::string(); });
}

Score plain_row(const infer::Model& model, const data::Batch& batch, int64_t row) {
  const auto& c = model.config();
  Score out;
  const auto layers = eidetic_layers(c);
  out.num_held.resize(layers.size());
  auto state = model.begin();
  std::vector<float> hidden(static_cast<size_t>(c.hidden_size)),
      logits(static_cast<size_t>(c.vocab_size));
  for (int64_t t = 0; t < batch.length; ++t) {
    const auto at = static_cast<size_t>(row * batch.length + t);
    const infer::Input input{.state = &state,
                             .ids = {&batch.ids[at], 1},
                             .wanted = &batch.wanted[static_cast<size_t>(row)]};
    model.forward({&input, 1}, hidden.data());
    for (size_t i = 0; i < layers.size(); ++i) {
      const auto& seen = state.layers[static_cast<size_t>(layers[i])].frozen.position;
      if (batch.sources[at] != data::kNoSource)
        out.num_held[i] += std::ranges::count(seen, batch.sources[at]);
    }
    if (batch.targets[at] == data::kNotScored) continue;
    model.logits(hidden.data(), 1, logits.data());
    double sum = 0;
    for (const auto x : logits) sum += std::exp(static_cast<double>(x));
    const auto due = static_cast<size_t>(batch.targets[at]);
    out.nats += std::log(sum) - static_cast<double>(logits[due]);
    out.num_right += std::ranges::max_element(logits) - logits.begin() == batch.targets[at];
    ++out.num_scored;
  }
  return out;
}

TEST(Evaluate, CountsWhatAPlainReaderCounts) {
  int64_t held = 0, right = 0;
  for (uint64_t seed = 0; seed < kDraws; ++seed) {
    test::Draw draw(seed);
    if (seed % 4 == 0) draw.config.eidetic_rule = "oracle";
    const auto batch = test::random_batch(draw.config, 3, std::ssize(draw.ids), seed);
    const auto got = evaluate(*language_model(draw), batch);
    const auto plain = draw.model(1);
    Score expected;
    for (int64_t row = 0; row < batch.num_sequences; ++row)
      expected += plain_row(plain, batch, row);
    EXPECT_EQ(got.num_scored, expected.num_scored) << draw.text();
    EXPECT_EQ(got.num_scored, batch.num_scored) << draw.text();
    EXPECT_EQ(got.num_right, expected.num_right) << draw.text();
    EXPECT_EQ(got.num_held, expected.num_held) << draw.text();
    EXPECT_NEAR(got.nats, expected.nats, 1e-5 * std::max(1.0, expected.nats)) << draw.text();
    right += got.num_right;
    for (const auto count : got.num_held) held += count;
  }
  EXPECT_GT(right, 30);
  EXPECT_GT(held, 200);
}

TEST(Evaluate, WholeIsChunksIsAlone) {
  for (uint64_t seed = 100; seed < 100 + kDraws; ++seed) {
    test::Draw draw(seed);
    if (seed % 4 == 0) draw.config.eidetic_rule = "oracle";
    const auto model = language_model(draw);
    const auto batch = test::random_batch(draw.config, 3, std::ssize(draw.ids), seed);
    const auto whole = evaluate(*model, batch);
    for (const int64_t segment : {1, 5, 13}) {
      const auto cut = evaluate(*model, batch, segment);
      EXPECT_EQ(cut.num_right, whole.num_right) << draw.text();
      EXPECT_EQ(cut.num_held, whole.num_held) << draw.text();
      // The same numbers, added in another order.
      EXPECT_NEAR(cut.nats, whole.nats, 1e-12 * std::max(1.0, whole.nats)) << draw.text();
    }
    Score alone;
    for (int64_t row = 0; row < batch.num_sequences; ++row) {
      data::Batch one = data::columns(batch, 0, batch.length);
      const auto take = [&](std::vector<int64_t>& all) {
        all = {all.begin() + row * batch.length, all.begin() + (row + 1) * batch.length};
      };
      one.num_sequences = 1;
      take(one.ids);
      take(one.targets);
      take(one.sources);
      one.wanted = {batch.wanted[static_cast<size_t>(row)]};
      alone += evaluate(*model, one);
    }
    EXPECT_EQ(alone.num_right, whole.num_right) << draw.text();
    EXPECT_EQ(alone.num_held, whole.num_held) << draw.text();
    EXPECT_NEAR(alone.nats, whole.nats, 1e-12 * std::max(1.0, whole.nats)) << draw.text();
  }
}

// A row of documents is read as if each stood alone, wherever calls and documents are cut.
TEST(Evaluate, ADocumentStartsAfresh) {
  for (uint64_t seed = 200; seed < 200 + kDraws; ++seed) {
    const test::Draw draw(seed);
    const auto model = language_model(draw);
    auto batch = test::random_batch(draw.config, 2, 3 + std::ssize(draw.ids), seed);
    batch.sources.clear();
    batch.documents.resize(batch.ids.size());
    base::Random random({seed, 81});
    for (size_t i = 0; i < batch.ids.size(); ++i)
      batch.documents[i] = i % static_cast<size_t>(batch.length) == 0
                               ? 7
                               : batch.documents[i - 1] + (random.below(9) == 0 ? 1 : 0);
    Score alone;
    for (size_t i = 0; i < batch.ids.size();) {
      const size_t row_end =
          (i / static_cast<size_t>(batch.length) + 1) * static_cast<size_t>(batch.length);
      size_t end = i + 1;
      while (end < row_end && batch.documents[end] == batch.documents[i]) ++end;
      auto one = data::empty_batch(1, static_cast<int64_t>(end - i), /*with_documents=*/false);
      std::copy_n(batch.ids.begin() + static_cast<int64_t>(i), end - i, one.ids.begin());
      std::copy_n(batch.targets.begin() + static_cast<int64_t>(i), end - i, one.targets.begin());
      alone += evaluate(*model, one);
      i = end;
    }
    for (const int64_t segment : {2, 11, 2048}) {
      const auto together = evaluate(*model, batch, segment);
      EXPECT_EQ(together.num_right, alone.num_right) << draw.text();
      EXPECT_NEAR(together.nats, alone.nats, 1e-12 * std::max(1.0, alone.nats)) << draw.text();
    }
  }
}

TEST(Evaluate, AnOracleKeepsWhatItIsTold) {
  test::Draw draw(1);
  draw.config = test::random_model(1);
  draw.config.pattern = "bmojo";
  draw.config.window = 4;
  draw.config.eidetic_tokens = 3;
  draw.config.eidetic_rule = "oracle";
  draw.config.fading_residual = true;
  test::write_strong_checkpoint(draw.config, 1, draw.folder.path());
  const auto model = draw.model(1);
  const std::vector<int64_t> wanted = {9, 2, 14, 5, 0}, ids(20, 1);
  std::vector<float> hidden(static_cast<size_t>(draw.config.hidden_size));
  auto state = model.begin();
  for (int64_t t = 0; t < 20; ++t) {
    const infer::Input input{.state = &state, .ids = {&ids[0], 1}, .wanted = &wanted};
    model.forward({&input, 1}, hidden.data());
    std::vector<int64_t> expected;
    for (const auto p : wanted)
      if (p <= t && expected.size() < 3) expected.push_back(p);
    std::ranges::sort(expected);
    EXPECT_EQ(state.layers[0].running.position, expected) << t;
  }
  const infer::Input untold{.state = &state, .ids = ids};
  try {
    model.forward({&untold, 1}, hidden.data());
    FAIL();
  } catch (const base::Error& error) {
    EXPECT_STREQ(error.what(),
                 "forward: eidetic_rule=oracle must be told what to keep, got no task's sources; "
                 "use train --task or eval --task");
  }
}

}  // namespace
}  // namespace bmojo::eval
