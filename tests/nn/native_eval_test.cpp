// What is written over eval::LanguageModel gives the same with torch and without: evaluation, and
// what a sequence was remembered by. Products are ours on both sides, so selections agree too.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "bmojo/eval/evaluate.h"
#include "bmojo/eval/explain.h"
#include "bmojo/infer/language_model.h"
#include "bmojo/nn/language_model.h"
#include "bmojo/nn/ops/product.h"
#include "tests/eval/support.h"
#include "tests/infer/support.h"

namespace bmojo {
namespace {

// Both engines over one checkpoint.
struct Engines {
  explicit Engines(uint64_t seed) : draw(seed) {
    if (seed % 4 == 0) draw.config.eidetic_rule = "oracle";
    native = std::make_unique<infer::NativeLanguageModel>(
        std::make_unique<infer::Model>(model::TensorFolder(draw.folder.path()), draw.config,
                                       infer::WeightType::f32, 1),
        [] { return std::string(); });
    auto parameters = nn::load_parameters(model::Checkpoint(draw.folder.path()));
    torch = nn::make_language_model(nn::Model(draw.config, std::move(parameters)));
  }

  test::Draw draw;
  std::unique_ptr<eval::LanguageModel> native, torch;
};

void expect_near(const eval::Score& a, const eval::Score& b, const std::string& where) {
  EXPECT_EQ(a.num_scored, b.num_scored) << where;
  EXPECT_EQ(a.num_right, b.num_right) << where;
  EXPECT_EQ(a.num_held, b.num_held) << where;
  EXPECT_NEAR(a.nats, b.nats, 1e-5 * std::max(1.0, std::abs(b.nats))) << where;
}

TEST(NativeEval, ScoresAreThoseOfTorch) {
  const nn::EveryProduct every_product_is_ours;
  for (uint64_t seed = 3000; seed < 3040; ++seed) {
    const Engines engines(seed);
    auto batch = test::random_batch(engines.draw.config, 3, 2 + std::ssize(engines.draw.ids), seed);
    const auto expected = eval::evaluate(*engines.torch, batch);
    expect_near(eval::evaluate(*engines.native, batch), expected, engines.draw.text());
    // The torch engine reads a batch at once, and goes on with it.
    expect_near(eval::evaluate(*engines.torch, batch, 7), expected, engines.draw.text());
    batch.documents.resize(batch.ids.size());
    batch.sources.clear();
    for (size_t i = 0; i < batch.ids.size(); ++i)
      batch.documents[i] = static_cast<int64_t>(i % static_cast<size_t>(batch.length) / 17);
    expect_near(eval::evaluate(*engines.native, batch), eval::evaluate(*engines.torch, batch, 9),
                engines.draw.text());
  }
}

// A sequence that leaves its batch goes on as if it had been alone.
TEST(NativeEval, ATorchSequenceLeavesItsBatch) {
  const nn::EveryProduct every_product_is_ours;
  for (uint64_t seed = 3101; seed < 3120; seed += 2) {
    const Engines engines(seed);
    const auto& ids = engines.draw.ids;
    const auto D = static_cast<size_t>(engines.draw.config.hidden_size);
    const std::vector<int64_t> other(ids.rbegin(), ids.rend());
    const auto together = engines.torch->begin(), beside = engines.torch->begin(),
               alone = engines.torch->begin();
    std::vector<float> both(2 * ids.size() * D), expected(ids.size() * D), next(D), next_alone(D);
    const eval::Reading pair[] = {{beside.get(), other}, {together.get(), ids}};
    engines.torch->forward(pair, both.data());
    const eval::Reading one{alone.get(), ids};
    engines.torch->forward({&one, 1}, expected.data());
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(both[ids.size() * D + i], expected[i], 1e-4) << engines.draw.text();
    EXPECT_EQ(together->position(), std::ssize(ids));
    const eval::Reading after{together.get(), {ids.data(), 1}},
        after_alone{alone.get(), {ids.data(), 1}};
    engines.torch->forward({&after, 1}, next.data());
    engines.torch->forward({&after_alone, 1}, next_alone.data());
    for (size_t i = 0; i < D; ++i) ASSERT_NEAR(next[i], next_alone[i], 1e-4) << engines.draw.text();
    EXPECT_EQ(beside->position(), std::ssize(ids));
  }
}

// Of every piece: where it ends, whether its chunk does, what its queries saw and what leaves.
struct Borders : eval::Observer {
  struct Told {
    int64_t layer, end;
    bool ends_chunk;
    std::vector<int64_t> seen, left;
    bool operator==(const Told&) const = default;
  };
  std::vector<Told> all;

  void on_piece(const eval::PieceTold& piece) override {
    all.push_back({piece.layer,
                   piece.first.position + std::ssize(piece.innovation),
                   piece.ends_chunk,
                   {piece.seen.begin(), piece.seen.end()},
                   piece.left()});
  }
  // Each layer's in order.
  std::vector<Told> of(int64_t layer) const {
    std::vector<Told> out;
    std::ranges::copy_if(all, std::back_inserter(out),
                         [&](const Told& told) { return told.layer == layer; });
    return out;
  }
};

Borders borders(const eval::LanguageModel& model, const test::Draw& draw) {
  Borders out;
  const auto memory = model.begin();
  const size_t half = draw.ids.size() / 2;
  const auto D = static_cast<size_t>(draw.config.hidden_size);
  std::vector<float> hidden(draw.ids.size() * D);
  for (const auto ids : {std::span(draw.ids).first(half), std::span(draw.ids).subspan(half)}) {
    const eval::Reading reading{memory.get(), ids};
    if (!ids.empty()) model.forward({&reading, 1}, hidden.data(), &out);
  }
  return out;
}

TEST(NativeEval, AChunkThatEndsIsToldAndWhoLeaves) {
  const nn::EveryProduct every_product_is_ours;
  int64_t ends = 0, left = 0;
  for (uint64_t seed = 3301; seed < 3381; seed += 2) {
    const Engines engines(seed);
    const auto& c = engines.draw.config;
    const auto native = borders(*engines.native, engines.draw);
    const auto torch = borders(*engines.torch, engines.draw);
    for (int64_t layer = 0; layer < c.num_layers; ++layer) {
      const auto told = native.of(layer);
      EXPECT_EQ(told, torch.of(layer)) << engines.draw.text();
      for (size_t i = 0; i < told.size(); ++i) {
        EXPECT_EQ(told[i].ends_chunk, told[i].end % c.window == 0) << engines.draw.text();
        if (i + 1 == told.size()) continue;
        // Whoever was seen and is not seen in the next chunk has left.
        std::vector<int64_t> gone;
        std::ranges::set_difference(told[i].seen, told[i + 1].seen, std::back_inserter(gone));
        EXPECT_EQ(gone, told[i].ends_chunk ? told[i].left : std::vector<int64_t>())
            << engines.draw.text();
        ends += told[i].ends_chunk;
        left += std::ssize(gone);
      }
    }
  }
  // The draws reach what they are meant to.
  EXPECT_GT(ends, 100);
  EXPECT_GT(left, 50);
}

// The largest keys of a query. Where two have the same weight (a token that stands twice, without
// positions) rounding says which comes first.
void expect_same_keys(const base::Json& a, const base::Json& b, const std::string& where) {
  ASSERT_EQ(a.size(), b.size()) << where;
  const double least = a.back()["weight"];
  for (size_t i = 0; i < a.size(); ++i) {
    const double weight = a[i]["weight"];
    EXPECT_NEAR(weight, b[i]["weight"].get<double>(), 1e-4) << where;
    const auto is_it = [&](const base::Json& key) {
      return key["memory"] == a[i]["memory"] && key["position"] == a[i]["position"];
    };
    EXPECT_TRUE(weight < least + 1e-4 || std::ranges::any_of(b, is_it)) << where << a[i];
  }
}

// Numbers to 1e-4, everything else as it is.
void expect_same(const base::Json& a, const base::Json& b, const std::string& where) {
  if (a.is_number_float() || b.is_number_float()) {
    const auto x = a.get<double>(), y = b.get<double>();
    EXPECT_NEAR(x, y, 1e-4 * std::max(1.0, std::abs(y))) << where;
  } else if (a.is_object()) {
    ASSERT_EQ(a.size(), b.size()) << where;
    for (const auto& [key, value] : a.items())
      key == "keys" ? expect_same_keys(value, b.at(key), where)
                    : expect_same(value, b.at(key), where + "/" + key);
  } else if (a.is_array()) {
    ASSERT_EQ(a.size(), b.size()) << where;
    for (size_t i = 0; i < a.size(); ++i) expect_same(a[i], b[i], fmt::format("{}/{}", where, i));
  } else {
    EXPECT_EQ(a, b) << where;
  }
}

TEST(NativeEval, ExplanationsAreThoseOfTorch) {
  const nn::EveryProduct every_product_is_ours;
  int64_t eidetic = 0, fading = 0;
  for (uint64_t seed = 3200; seed < 3260; ++seed) {
    const Engines engines(seed);
    const auto sequence =
        test::random_batch(engines.draw.config, 1, 2 + std::ssize(engines.draw.ids), seed);
    const auto expected = eval::explain(*engines.torch, sequence);
    const auto got = eval::explain(*engines.native, sequence);
    expect_same(got, expected, engines.draw.text());
    for (const auto& answer : got["answers"])
      for (const auto& layer : answer["layers"]) {
        eidetic += layer["attention"]["eidetic"] > 0.01;
        fading += layer["attention"]["fading"] > 0.01;
      }
  }
  // The draws reach what they are meant to.
  EXPECT_GT(eidetic, 100);
  EXPECT_GT(fading, 100);
}

}  // namespace
}  // namespace bmojo
