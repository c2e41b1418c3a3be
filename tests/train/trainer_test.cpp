#include "bmojo/train/trainer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <set>

#include "bmojo/base/error.h"
#include "bmojo/base/run_file.h"
#include "bmojo/train/progress_text.h"
#include "tests/data/token_folder.h"
#include "tests/train/golden_losses.h"
#include "tests/train/support.h"

namespace bmojo::train {
namespace {

class TrainerTest : public testing::Test {
 protected:
  test::TempFolder folder_;
};

double largest_difference(const nn::Model& a, const nn::Model& b) {
  double largest = 0;
  for (const auto& [name, tensor] : a.parameters()) {
    const auto x = tensor.grad(), y = b.parameter(name).grad();
    const double scale = std::max(x.abs().max().item<double>(), 1e-6);
    largest = std::max(largest, (x - y).abs().max().item<double>() / scale);
  }
  return largest;
}

// Through n segments the gradient is that of the whole sequence.
TEST_F(TrainerTest, SegmentsHaveTheGradientOfTheWhole) {
  for (const std::string family : kFamilies) {
    Recipe recipe;
    recipe.task = "mqar:pairs=6,length=96,vocab=64,gap=24";
    recipe.batch_tokens = 4 * 96;
    recipe.steps = 1;
    auto whole = make_trainer(family, recipe, folder_.path());
    const double loss = whole->step().loss;
    for (const auto& [segment, bptt] : {std::pair{48, 2}, {32, 3}, {8, 12}}) {
      recipe.segment = segment;
      recipe.bptt = bptt;
      auto parts = make_trainer(family, recipe, folder_.path());
      EXPECT_NEAR(parts->step().loss, loss, 1e-5 * loss) << family << " " << bptt;
      EXPECT_LT(largest_difference(whole->model(), parts->model()), 1e-3) << family << " " << bptt;
    }
    // One row at a time: sums in another order, the same gradient.
    recipe.segment = 32;
    recipe.bptt = 3;
    recipe.micro_batch = 1;
    auto one_by_one = make_trainer(family, recipe, folder_.path());
    one_by_one->step();
    EXPECT_LT(largest_difference(whole->model(), one_by_one->model()), 1e-3) << family;
  }
}

// Memories carried from step to step: the losses of the steps are those of one long forward.
TEST_F(TrainerTest, CarriedStateIsOneLongForward) {
  // One document without an end in sight: every step scores as many tokens.
  const auto data = test::write_random_tokens(folder_.path() / "data", 4000, 50, 1);
  for (const std::string family : kFamilies) {
    Recipe recipe;
    recipe.data = {data.string()};
    recipe.lr = recipe.ssm_lr = recipe.min_lr = 0;
    recipe.weight_decay = 0;
    recipe.segment = 24;
    recipe.batch_tokens = 3 * 24;
    recipe.context = 0;
    recipe.steps = 8;
    const auto mean_loss = [&](Recipe given) {
      auto trainer = make_trainer(family, given, folder_.path());
      double sum = 0;
      for (int i = 0; i < given.steps; ++i) sum += trainer->step().loss;
      return sum / static_cast<double>(given.steps);
    };
    const double pieces = mean_loss(recipe);
    recipe.segment = 8 * 24;
    recipe.batch_tokens = 3 * 8 * 24;
    recipe.steps = 1;
    const double whole = mean_loss(recipe);
    EXPECT_NEAR(pieces, whole, 2e-5 * whole) << family;
  }
}

TEST_F(TrainerTest, AccumulationIsOneBatch) {
  Recipe recipe;
  recipe.task = "mqar:pairs=2..6,length=64,vocab=64";
  recipe.batch_tokens = 12 * 64;
  recipe.micro_batch = 12;
  recipe.steps = 3;
  auto whole = make_trainer("bmojo", recipe, folder_.path());
  recipe.micro_batch = 3;
  auto parts = make_trainer("bmojo", recipe, folder_.path());
  for (int i = 0; i < 3; ++i) {
    const double loss = whole->step().loss;
    EXPECT_NEAR(parts->step().loss, loss, 1e-5 * loss);
  }
}

TEST_F(TrainerTest, TwoRunsAgreeInEveryBit) {
  for (const std::string family : kFamilies) {
    Recipe recipe;
    recipe.task = "mqar:pairs=4,length=64,vocab=64";
    recipe.batch_tokens = 8 * 64;
    recipe.micro_batch = 4;
    recipe.steps = 10;
    recipe.lr = recipe.ssm_lr = 1e-2;
    auto one = make_trainer(family, recipe, folder_.path());
    auto other = make_trainer(family, recipe, folder_.path());
    for (int i = 0; i < 10; ++i) EXPECT_EQ(one->step().loss, other->step().loss) << family;
    for (const auto& [name, tensor] : one->model().parameters())
      EXPECT_TRUE(tensor.equal(other->model().parameter(name))) << family << " " << name;
  }
}

// Losses of ten steps of each family. Selection may turn on a last bit, but these cases are far
// from ties: another machine agrees to 1e-4.
TEST_F(TrainerTest, TenLossesAsTheyWere) {
  for (const std::string family : kFamilies) {
    Recipe recipe;
    recipe.task = "mqar:pairs=4,length=64,vocab=64,gap=16";
    recipe.batch_tokens = 8 * 64;
    recipe.steps = 10;
    recipe.lr = 3e-3;
    recipe.ssm_lr = 6e-3;
    auto trainer = make_trainer(family, recipe, folder_.path());
    for (int i = 0; i < 10; ++i) {
      const double loss = trainer->step().loss;
      std::printf("%s%.8g%s", i == 0 ? ("{\"" + family + "\", {").c_str() : "", loss,
                  i == 9 ? "}},\n" : ", ");
      EXPECT_NEAR(loss, kGoldenLosses.at(family)[i], 1e-4 * loss) << family << " step " << i;
    }
  }
}

TEST_F(TrainerTest, EveryFamilyLearnsABatchByHeart) {
  for (const std::string family : kFamilies) {
    const auto config = small_config(family, 64);
    nn::Model model(config, nn::fresh_parameters(config, 1));
    model.require_gradients();
    torch::manual_seed(1);
    const auto ids = at::randint(64, {4, 65}, at::kLong);
    const auto inputs = ids.narrow(1, 0, 64), targets = ids.narrow(1, 1, 64);
    nn::AdamWGroup with{{}, 1e-2, 0.1}, without{{}, 1e-2, 0};
    for (const auto& [name, tensor] : model.parameters())
      (decays(name) ? with : without).parameters.push_back(tensor);
    nn::AdamW optimizer({with, without});
    double loss = INFINITY;
    int step = 0;
    for (; step < 500 && loss >= 0.01; ++step) {
      for (const auto& [name, tensor] : model.parameters())
        at::Tensor(tensor).mutable_grad() = at::Tensor();
      auto mean = model.loss(model.forward(inputs).hidden, targets, 1.0 / 256);
      mean.backward();
      optimizer.step(1);
      loss = mean.item<double>();
    }
    std::printf("%s: loss %.4f after %d steps\n", family.c_str(), loss, step);
    EXPECT_LT(loss, 0.01) << family;
  }
}

// Nothing that is not finite reaches a weight, and a run that sees nothing else stops.
TEST_F(TrainerTest, NotFiniteIsSkippedThenStops) {
  Recipe recipe;
  recipe.task = "mqar:pairs=4,length=32,vocab=64";
  recipe.batch_tokens = 2 * 32;
  recipe.steps = 50;
  recipe.max_skips = 4;
  recipe.eval_every = 100;
  auto trainer = make_trainer("bmojo", recipe, folder_.path());
  const auto& weight = trainer->model().parameter("norm.weight");
  at::Tensor(weight).data().fill_(NAN);
  const auto before = trainer->model().parameter("embedding.weight").clone();
  EXPECT_TRUE(trainer->step().skipped);
  EXPECT_TRUE(trainer->model().parameter("embedding.weight").equal(before));
  EXPECT_THROW(trainer->run(), base::RunError);
  EXPECT_EQ(trainer->num_steps_done(), 4);
  EXPECT_TRUE(trainer->model().parameter("embedding.weight").equal(before));
}

TEST(Groups, WhatDecaysAndWhatIsTheSsms) {
  auto config = small_config("bmojo", 64);
  config.num_layers = 1;
  config.tied_embeddings = config.fading_tied = false;
  config.ssm_bias = true;
  std::set<std::string> groups[2][2];  // of the SSM or not, decaying or not
  for (const auto& [name, tensor] : nn::empty_parameters(config, at::TensorOptions(at::kMeta)))
    groups[is_ssm(name)][decays(name)].insert(name);
  const std::string ssm = "layers.0.ssm.", attention = "layers.0.attention.", mlp = "layers.0.mlp.";
  using Names = std::set<std::string>;
  EXPECT_EQ(groups[true][true],
            (Names{ssm + "in_proj.weight", ssm + "conv1d.weight", ssm + "x_proj.weight",
                   ssm + "dt_proj.weight", ssm + "out_proj.weight"}));
  EXPECT_EQ(groups[true][false],
            (Names{ssm + "A_log", ssm + "D", ssm + "in_proj.bias", ssm + "conv1d.bias",
                   ssm + "dt_proj.bias", ssm + "out_proj.bias"}));
  EXPECT_EQ(
      groups[false][true],
      (Names{"embedding.weight", "head.weight", attention + "q_proj.weight",
             attention + "k_proj.weight", attention + "v_proj.weight", attention + "o_proj.weight",
             attention + "fading_k_proj.weight", attention + "fading_v_proj.weight",
             mlp + "gate_proj.weight", mlp + "up_proj.weight", mlp + "down_proj.weight"}));
  EXPECT_EQ(groups[false][false],
            (Names{"norm.weight", "layers.0.norm.weight", mlp + "norm.weight",
                   attention + "fading_norm.weight", attention + "innovation_bias"}));
}

TEST(Schedule, RisesThenFallsToTheLeast) {
  Recipe recipe;
  recipe.steps = 100;
  recipe.warmup = 0.1;
  recipe.min_lr = 1e-5;
  EXPECT_NEAR(rate_at(0, 1e-3, recipe), 1e-4, 1e-12);
  EXPECT_NEAR(rate_at(9, 1e-3, recipe), 1e-3, 1e-12);
  EXPECT_NEAR(rate_at(99, 1e-3, recipe), 1e-5, 1e-12);
  EXPECT_NEAR(rate_at(10, 1e-3, recipe), 1e-3, 1e-12);
  for (int i = 10; i < 99; ++i) EXPECT_GT(rate_at(i, 1e-3, recipe), rate_at(i + 1, 1e-3, recipe));
}

TEST(Schedule, PublishedRates) {
  EXPECT_DOUBLE_EQ(default_rate(125'000'000), 6e-4);
  EXPECT_DOUBLE_EQ(default_rate(1'000), 6e-4);
  EXPECT_DOUBLE_EQ(default_rate(350'000'000), 3e-4);
  EXPECT_DOUBLE_EQ(default_rate(1'300'000'000), 2e-4);
  EXPECT_DOUBLE_EQ(default_ssm_rate(350'000'000), 1.5e-3);
  EXPECT_GT(default_rate(200'000'000), 3e-4);
  EXPECT_LT(default_rate(200'000'000), 6e-4);
}

// Each field at its widest, in a terminal of 80 columns.
TEST(Progress, FitsALine) {
  ProgressNumbers widest{.step = 999'999,
                         .num_steps = 999'999,
                         .micro_batch = 99,
                         .num_micro = 100,
                         .is_first = false,
                         .loss = NAN,
                         .tokens_per_second = 99.9e6,
                         .seconds_left = 359'999,
                         .memory = 99'900'000'000};
  for (const double loss : {double{NAN}, 0.0, 99.99999, 999.99999, 1000.0, 1e300}) {
    widest.loss = loss;
    EXPECT_LE(progress_text(widest).size(), 79) << progress_text(widest);
  }
  EXPECT_EQ(progress_text({.step = 120,
                           .num_steps = 2000,
                           .is_first = false,
                           .loss = 3.214,
                           .tokens_per_second = 41'200,
                           .seconds_left = 200,
                           .memory = 1'210'000'000}),
            "step 120/2000  loss 3.2140  41.2 ktok/s  3:20 left  1.21 GB");
  EXPECT_EQ(progress_text({.num_steps = 5, .micro_batch = 1, .num_micro = 3, .memory = 250'000}),
            "step 0/5 + 33 %  250 kB");
}

// In the middle of a step the time left goes down with the clock, and never by more than a step.
TEST(Progress, TheTimeLeftDoesNotJump) {
  const double pace = 8;
  double before = seconds_left(10, pace, 0);
  EXPECT_DOUBLE_EQ(before, 80);
  for (double since = 1; since < 20; ++since) {
    const double now = seconds_left(10, pace, since);
    EXPECT_DOUBLE_EQ(now, std::max(80 - since, 72.0));
    EXPECT_LE(now, before);
    before = now;
  }
  EXPECT_DOUBLE_EQ(seconds_left(9, pace, 0), before) << "a step that took longer than the others";
  EXPECT_DOUBLE_EQ(seconds_left(0, pace, 0), 0);
}

std::string refusal(Recipe recipe, int64_t task_length = 0) {
  try {
    resolve(recipe, small_config("bmojo", 64), task_length);
  } catch (const base::Error& error) {
    return error.what();
  }
  return "";
}

TEST(Plan, WhatDoesNotDivideIsRefused) {
  Recipe recipe;
  recipe.steps = 1;
  EXPECT_EQ(refusal(recipe), "");
  recipe.batch_tokens = 1000;
  EXPECT_EQ(refusal(recipe),
            "--batch-tokens: must be a multiple of 2048 (segment x bptt x workers), got 1000");
  recipe.batch_tokens = 8192;
  recipe.micro_batch = 3;
  EXPECT_EQ(refusal(recipe),
            "--micro-batch: must divide the 4 sequences of a worker's step, got 3");
  recipe.micro_batch = 0;
  recipe.context = 3000;
  EXPECT_NE(refusal(recipe).find("--context: must be a multiple"), std::string::npos);
  recipe.context = -1;
  recipe.tokens = 5;
  EXPECT_NE(refusal(recipe).find("--steps and --tokens"), std::string::npos);
  recipe.tokens = 0;
  recipe.segment = 10;
  EXPECT_NE(refusal(recipe, 64).find("must be the task's length = 64"), std::string::npos);
  recipe.segment = 0;
  recipe.save_every = "often";
  EXPECT_NE(refusal(recipe).find("--save-every"), std::string::npos);
}

TEST(Plan, DefaultsArePublishedOnes) {
  Recipe recipe;
  const auto config = small_config("bmojo", 64);
  const auto plan = resolve(recipe, config, 0);
  EXPECT_EQ(recipe.batch_tokens, 1 << 19);
  EXPECT_EQ(recipe.segment, 2048);
  EXPECT_EQ(recipe.bptt, 1);
  EXPECT_EQ(recipe.context, 2048);
  EXPECT_EQ(recipe.micro_batch, 4);
  EXPECT_EQ(plan.num_sequences, 256);
  EXPECT_GE(plan.num_tokens(), 20 * plan.parameters);
  EXPECT_LT(plan.num_tokens(), 20 * plan.parameters + recipe.batch_tokens);
}

TEST(Plan, TokensAsSteps) {
  for (const auto& [tokens, steps] : {std::pair{1, 1}, {2048, 1}, {2049, 2}}) {
    Recipe recipe;
    recipe.batch_tokens = 2048;
    recipe.tokens = tokens;
    EXPECT_EQ(resolve(recipe, small_config("bmojo", 64), 0).num_steps, steps);
    EXPECT_EQ(recipe.steps, steps);
    EXPECT_EQ(recipe.tokens, 0) << "the steps say it";
  }
}

// A recipe that is complete stays as it is, and so do the numbers that are asked for again.
TEST(Plan, WhatWasChosenIsChosenAgain) {
  const auto config = small_config("bmojo", 64);
  for (const int64_t task_length : {0, 96}) {
    Recipe started;
    started.tokens = 5000;
    if (task_length > 0) started.bptt = 3;
    resolve(started, config, task_length);
    auto again = started;
    again.steps = again.micro_batch = again.segment = 0;
    again.tokens = 5000;
    if (task_length > 0) again.context = 0;
    EXPECT_EQ(said_fields(again)["bptt"], task_length > 0 ? 3 : 1);
    EXPECT_FALSE(said_fields(again).contains("segment"));
    EXPECT_NE(fixed_fields(again), fixed_fields(started));
    resolve(again, config, task_length);
    EXPECT_EQ(fixed_fields(again), fixed_fields(started));
  }
}

TEST(RunFile, ReadsWhatTomlWrites) {
  const auto items = base::parse_run_file(
      "# first\nsteps = 1_000 # a comment\r\n\n  lr=-1_0.5e-3\nrecompute = true\n"
      "task = \"a # b, \\\"c\\\\ \\u00e9\\U0001F600\\t\"\n'config' = 'C:\\x \"'\n"
      "data = [\n  \"x\", # one\n\n  'y',\n]\nset = []",
      "a.toml");
  ASSERT_EQ(items.size(), 7u);
  const auto check = [&](size_t i, const std::string& key, const std::vector<std::string>& values) {
    EXPECT_EQ(items[i].key, key);
    EXPECT_EQ(items[i].values, values) << key;
    EXPECT_EQ(items[i].is_list, key == "data" || key == "set") << key;
  };
  check(0, "steps", {"1000"});
  check(1, "lr", {"-10.5e-3"});
  check(2, "recompute", {"true"});
  check(3, "task", {"a # b, \"c\\ \xc3\xa9\xf0\x9f\x98\x80\t"});
  check(4, "config", {"C:\\x \""});
  check(5, "data", std::vector<std::string>{"x", "y"});
  check(6, "set", {});
  for (const char* number : {"0", "+5", "-0", "0.05", "1e-05", "1e+30", "6.02E2_3"})
    EXPECT_EQ(base::parse_run_file(fmt::format("a = {}", number), "a.toml").size(), 1u) << number;
  EXPECT_EQ(items[1].where, "a.toml:4");
  EXPECT_EQ(items[6].where, "a.toml:13");
  EXPECT_TRUE(base::parse_run_file("", "a.toml").empty());
}

TEST(RunFile, RefusesTheRestByLine) {
  const auto refused = [](const char* text) -> std::string {
    try {
      base::parse_run_file(text, "a.toml");
    } catch (const base::Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refused("a = 1\nb = 2\na = 3"),
            "a.toml:3: key 'a' must stand once, got it again after a.toml:1");
  EXPECT_EQ(refused("a = 1\n[model]\nb = 2"),
            "a.toml:2: must be key = value, got the table '[model]'; a run file has none");
  EXPECT_EQ(refused("= 1"), "a.toml:1: must be key = value, got '= 1'");
  EXPECT_EQ(refused("\nsteps"), "a.toml:2: key 'steps' must be followed by = and a value, got ''");
  for (const char* text : {"a =", "a = red", "a = 1__0", "a = _1", "a = 1_", "a = [1, [2]]",
                           "a = [1,", "a = -", "a = .5", "a = 5.", "a = 5._1", "a = 1e", "a = 10m",
                           "a = 0100", "a = 0_1", "a = 0x10", "a = 2026-01-31", "a = inf"})
    EXPECT_NE(refused(text).find("a.toml:1: value must be text in quotes, a number"),
              std::string::npos)
        << text;
  EXPECT_EQ(refused("a = [1 2]"), "a.toml:1: list must go on with a comma or end with ], got '2]'");
  EXPECT_EQ(refused("a = 1 2"), "a.toml:1: line must end behind the value, got '2'");
  EXPECT_EQ(refused("a = \"b\nc = 1"), "a.toml:1: text must end with \" on its line, got none");
  EXPECT_NE(refused("a = \"\\x\"").find("a.toml:1: what follows a backslash must be b,"),
            std::string::npos);
  for (const char* text :
       {"a = \"\\u12\"", "a = \"\\ud800\"", "a = \"\\U00110000\"", "a = \"\\u0000\""})
    EXPECT_NE(refused(text).find("a.toml:1: character must be given by"), std::string::npos)
        << text;
}

TEST(RunFile, ARecipeComesBack) {
  const std::string odd = "a \\n \"b\" 'c' # d, [e]\t\n\x7f \xc3\xa9";
  Recipe recipe;
  recipe.task = odd;
  recipe.data = {odd, "plain"};
  recipe.steps = 3;
  recipe.tokens = 0;
  size_t num_found = 0;
  for (const auto& item : base::parse_run_file(to_toml(recipe), "run.toml")) {
    EXPECT_NE(item.key, "tokens") << "the steps say it";
    if (item.key == "task") {
      EXPECT_EQ(item.values, std::vector<std::string>{odd});
      ++num_found;
    } else if (item.key == "data") {
      EXPECT_EQ(item.values, recipe.data);
      ++num_found;
    }
  }
  EXPECT_EQ(num_found, 2u);
}

TEST(Recipe, PathsAreThoseOfAnyFolder) {
  const auto here = std::filesystem::current_path();
  Recipe recipe;
  recipe.config = "a/../b.json";
  recipe.init_from = "/x/y/";
  recipe.data = {"./c", "d//e/"};
  recipe.preset = "bmojo-tiny";
  make_paths_absolute(recipe);
  EXPECT_EQ(recipe.config, (here / "a/../b.json").string());  // a may be a link
  EXPECT_EQ(recipe.init_from, "/x/y");
  EXPECT_EQ(recipe.data[0], (here / "c").string());
  EXPECT_EQ(recipe.data[1], (here / "d/e").string());
  EXPECT_EQ(recipe.preset, "bmojo-tiny");
  EXPECT_EQ(recipe.val_data.size(), 0u);
}

TEST(Recipe, OfAListTheFirstDifferenceIsSaid) {
  const std::string started = R"({"set": ["a=1", "b=2"], "lr": 0.5})";
  const auto refused = [&](const std::string& now) -> std::string {
    try {
      require_same(base::parse_json(started, "started"), base::parse_json(now, "now"), "run");
    } catch (const base::Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string anew = "; to change it, start anew in another --out";
  EXPECT_EQ(refused(started), "");
  EXPECT_EQ(refused(R"({"set": ["a=1", "b=3"]})"),
            "--resume: set must be \"b=2\" in place 2, as run was started, got \"b=3\"" + anew);
  EXPECT_EQ(refused(R"({"set": ["a=1"]})"),
            "--resume: set must be \"b=2\" in place 2, as run was started, got none" + anew);
  EXPECT_EQ(refused(R"({"set": ["a=1", "b=2", "c=3"]})"),
            "--resume: set must be none in place 3, as run was started, got \"c=3\"" + anew);
  EXPECT_EQ(refused(R"({"lr": 0.25})"),
            "--resume: lr must be 0.5, as run was started, got 0.25" + anew);
}

}  // namespace
}  // namespace bmojo::train
