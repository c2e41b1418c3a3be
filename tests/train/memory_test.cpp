// What the eidetic memory holds on the tasks, by each rule, and that tight memory is tight: rules
// that do not choose hold few of the answers.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <set>

#include "bmojo/base/error.h"
#include "bmojo/nn/language_model.h"
#include "tests/train/support.h"

namespace bmojo::train {
namespace {

// One layer that is small in all but its memory.
nn::Model small_model(const std::string& rule, int64_t eidetic_tokens, int64_t vocab_size) {
  auto config = small_config("bmojo", vocab_size);
  config.num_layers = 1;
  config.hidden_size = 8;
  config.eidetic_tokens = eidetic_tokens;
  config.eidetic_rule = rule;
  model::validate(config);
  return nn::Model(config, nn::fresh_parameters(config, 1));
}

double held_by(const std::string& rule, int64_t places, const std::string& text,
               int64_t sequences) {
  const auto task = data::parse_task(text);
  const auto model = small_model(rule, places, task.vocab_size);
  eval::Score total;
  total += eval::evaluate(*nn::make_language_model(model),
                          data::draw(task, 7, data::Split::test, 0, sequences));
  EXPECT_EQ(total.num_held.size(), 1u);
  return total.held()[0];
}

TEST(Memory, HeldCountsAnswersInTheSet) {
  // Window 16, pairs in the first 32 tokens, the first question 64 behind them.
  const std::string text = "mqar:pairs=16,length=128,vocab=64,gap=64";
  EXPECT_EQ(held_by("innovation", 1000, text, 8), 1) << "a place for every token";
  EXPECT_EQ(held_by("oracle", 32, text, 8), 1) << "exactly the pairs";
  EXPECT_EQ(held_by("oracle", 16, text, 8), 1) << "values before keys";
  EXPECT_EQ(held_by("oracle", 8, text, 8), 0.5) << "half of the values, the earliest";
  EXPECT_EQ(held_by("first", 32, text, 8), 1);
  EXPECT_EQ(held_by("first", 16, text, 8), 0.5);
  EXPECT_EQ(held_by("recent", 32, text, 8), 0);
  const double random = held_by("random", 32, text, 64);
  EXPECT_NEAR(random, 32.0 / 96, 0.1) << "of 96 to 128 tokens read before a question";
}

// The rule is a hash of the layer, the position and the id: the same wherever the text is cut.
TEST(Memory, RandomIsTheSameInEveryCut) {
  torch::NoGradGuard no_grad;
  const auto model = small_model("random", 6, 64);
  const auto ids = at::randint(64, {1, 96}, at::kLong);
  const auto whole = model.forward(ids).state.layers[0].running.position;
  nn::State state;
  for (int64_t t = 0; t < 96; t += 5)
    state = model.forward(ids.slice(1, t, std::min<int64_t>(t + 5, 96)), state).state;
  EXPECT_TRUE(at::equal(state.layers[0].running.position, whole));
  const auto other = model.forward((ids + 1) % 64).state.layers[0].running.position;
  EXPECT_FALSE(at::equal(other, whole)) << "other tokens, another choice";
}

// Fillers random, 2 P places, pairs anywhere in a span of 8 P, and a long gap.
TEST(Memory, TightMemoryIsTight) {
  struct Tight {
    int64_t pairs, span, gap, sequences;
  };
  for (const auto& [pairs, span, gap, sequences] :
       {Tight{8, 64, 112, 200}, {16, 128, 160, 100}, {24, 192, 192, 60}, {64, 512, 384, 20}}) {
    const auto text = fmt::format("mqar:pairs={},span={},gap={},length={},vocab=512", pairs, span,
                                  gap, span + gap + 2 * pairs);
    SCOPED_TRACE(text);
    for (const char* rule : {"first", "recent", "random"})
      EXPECT_LE(held_by(rule, 2 * pairs, text, sequences), 0.35) << rule;
    EXPECT_EQ(held_by("oracle", 2 * pairs, text, 4), 1);
  }
}

TEST(Memory, SourcesAreWhereTheAnswersStand) {
  for (const char* text :
       {"mqar:pairs=8,length=128,span=64,vocab=64", "noisy-mqar:pairs=6,length=96,vocab=64,gap=9",
        "fuzzy-mqar:pairs=5,length=96,vocab=64,gap=4", "induction", "selective-copy"}) {
    SCOPED_TRACE(text);
    const auto batch = data::draw(data::parse_task(text), 3, data::Split::train, 0, 50);
    const auto ids_BL = tensor_of(batch, batch.ids), targets_BL = tensor_of(batch, batch.targets),
               sources_BL = tensor_of(batch, batch.sources);
    const auto ids = ids_BL.accessor<int64_t, 2>(), targets = targets_BL.accessor<int64_t, 2>(),
               sources = sources_BL.accessor<int64_t, 2>();
    for (int64_t b = 0; b < 50; ++b)
      for (int64_t t = 0; t < batch.length; ++t) {
        ASSERT_EQ(targets[b][t] == data::kNotScored, sources[b][t] == data::kNoSource);
        if (sources[b][t] == data::kNoSource) continue;
        ASSERT_LE(sources[b][t], t);
        ASSERT_EQ(ids[b][sources[b][t]], targets[b][t]);
      }
  }
}

TEST(Memory, AnOracleNeedsATask) {
  const auto model = small_model("oracle", 4, 32);
  try {
    model.forward(at::zeros({1, 9}, at::kLong));
    FAIL();
  } catch (const base::Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "forward: eidetic_rule=oracle must be told what to keep, got no task's sources; use "
              "train --task or eval --task");
  }
}

TEST(Memory, TheCutBeginsAtItsStep) {
  const auto config = small_config("bmojo", 64);
  Recipe recipe;
  recipe.steps = 100;
  EXPECT_EQ(cut_at(99, recipe, config).places, 0) << "without --shadow nothing is cut";
  EXPECT_EQ(training_config(recipe, config), config);
  recipe.shadow = 2.5;
  recipe.cut_from = 0.25;
  recipe.cut_temperature = 0.2;
  EXPECT_EQ(cut_at(24, recipe, config).places, 0);
  EXPECT_EQ(cut_at(25, recipe, config).places, config.eidetic_tokens);
  EXPECT_EQ(cut_at(25, recipe, config).temperature, 0.2);
  EXPECT_EQ(training_config(recipe, config).eidetic_tokens, 30);
  recipe.cut_places = "shrinking";  // 12 · 2.5^(1 − part), from a quarter to four fifths
  EXPECT_EQ(cut_at(25, recipe, config).places, 30);
  EXPECT_EQ(cut_at(52, recipe, config).places, 19);
  EXPECT_EQ(cut_at(80, recipe, config).places, 12);
  EXPECT_EQ(cut_at(99, recipe, config).places, 12);
  recipe.cut_places = "drawn";
  std::set<int64_t> drawn;
  for (int64_t step = 25; step < 100; ++step) drawn.insert(cut_at(step, recipe, config).places);
  EXPECT_LE(*drawn.rbegin(), 30);
  EXPECT_GE(*drawn.begin(), 12);
  EXPECT_GT(drawn.size(), 10u);
}

// A step with a shadow is not the step without, and validation uses the places of the config.
TEST(Memory, TheShadowIsTrainedAndNotUsed) {
  test::TempFolder folder;
  Recipe recipe;
  recipe.task = "mqar:pairs=6,length=96,vocab=64,gap=24";
  recipe.batch_tokens = 4 * 96;
  recipe.steps = 2;
  const auto losses = [&](double shadow, double from) {
    recipe.shadow = shadow;
    recipe.cut_from = from;
    auto trainer = make_trainer("bmojo", recipe, folder.path());
    const std::pair first{trainer->step().loss, trainer->step().loss};
    EXPECT_EQ(trainer->model().config().eidetic_tokens, 12);
    return first;
  };
  const auto plain = losses(1, 0), open = losses(4, 0.5), cut = losses(4, 0);
  EXPECT_NE(open.first, plain.first);
  EXPECT_NE(open.first, cut.first);
  EXPECT_EQ(losses(4, 0.5), open) << "and the same again";
}

}  // namespace
}  // namespace bmojo::train
