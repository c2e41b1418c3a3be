// The public header beside what it wraps.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "bmojo/eval/generate.h"
#include "bmojo/eval/prompt.h"
#include "bmojo/infer/language_model.h"
#include "tests/library/support.h"

namespace bmojo::test {
namespace {

using Ids = std::vector<int64_t>;

static_assert(std::is_nothrow_move_constructible_v<api::State>);
static_assert(std::is_nothrow_move_assignable_v<api::State>);
static_assert(std::is_copy_assignable_v<api::State>);
static_assert(std::is_nothrow_move_constructible_v<api::TextStream>);
static_assert(std::is_nothrow_copy_constructible_v<api::Model>);
static_assert(std::is_nothrow_copy_constructible_v<api::Tokenizer>);
static_assert(std::is_copy_assignable_v<api::Sampler>);

// A model of bytes on disk, through the library and through the engine.
struct Both {
  explicit Both(const api::ModelOptions& options = {.threads = 1}) {
    write_strong_checkpoint(bytes_model(), 5, folder.path());
    model.emplace(folder.path(), options);
    const auto checkpoint = std::make_shared<const model::Checkpoint>(folder.path());
    engine = infer::open_native(checkpoint, checkpoint->config, {}, 1);
  }
  eval::Continuation continuation(const Ids& ids, uint64_t seed) const {
    auto from = eval::begin(*engine);
    from.seed = seed;
    eval::read_prompt(*engine, ids, from);
    return from;
  }
  api::State state(const Ids& ids, uint64_t seed = 0) const {
    auto state = model->begin(seed);
    state.read(ids);
    return state;
  }

  TempFolder folder;
  std::optional<api::Model> model;
  std::unique_ptr<infer::NativeLanguageModel> engine;
};

TEST(Library, ReadsWhatTheEngineReads) {
  for (uint64_t seed = 7000; seed < 7030; ++seed) {
    const Draw draw(seed);
    const auto expected = read(draw.model(1), draw.ids).logits;
    const api::Model model(draw.folder.path(), {.threads = 1});
    auto whole = model.begin(), steps = model.begin();
    std::vector<float> logits(expected.size());
    whole.read(draw.ids, logits);
    EXPECT_TRUE(same_bits(logits, expected)) << draw.text();
    for (const auto id : draw.ids) steps.read(id);
    const auto V = static_cast<size_t>(model.vocab_size());
    EXPECT_TRUE(same_bits(whole.logits(), std::span(expected).last(V))) << draw.text();
    EXPECT_TRUE(same_bits(steps.logits(), std::span(expected).last(V))) << draw.text();
    EXPECT_EQ(steps.position(), std::ssize(draw.ids));
  }
}

// Texts of many lengths, two of them longer than what is read at once, one empty.
TEST(Library, ABatchReadsAsEachAlone) {
  const Both both;
  const size_t lengths[] = {700, 1, 0, 513, 90};
  std::vector<Ids> texts;
  std::vector<api::State> together;
  std::vector<api::Reading> batch;
  for (const auto length : lengths) {
    texts.push_back(random_ids(bytes_model(), static_cast<int64_t>(length), length));
    together.push_back(both.state({3, 1, 4}));
  }
  for (size_t i = 0; i < texts.size(); ++i) batch.push_back({&together[i], texts[i]});
  both.model->read(batch);
  for (size_t i = 0; i < texts.size(); ++i) {
    auto alone = both.state({3, 1, 4});
    for (size_t done = 0; done < texts[i].size(); done += 100)
      alone.read(std::span(texts[i]).subspan(done, std::min<size_t>(100, texts[i].size() - done)));
    EXPECT_EQ(alone.position(), together[i].position());
    EXPECT_TRUE(same_bits(alone.logits(), together[i].logits())) << i;
    const api::Sampler sampler({.repetition_penalty = 3});
    EXPECT_EQ(write(alone, sampler, 40), write(together[i], sampler, 40)) << i;
  }
}

TEST(Library, ACopyGoesItsOwnWay) {
  const Both both;
  const api::Sampler sampler;
  auto first = both.state({1, 2, 3}, 9);
  auto second = first, third = first;
  EXPECT_EQ(second.seed(), 9u);
  third.set_seed(10);
  const auto ids = write(first, sampler, 30);
  EXPECT_EQ(first.position(), 33);
  EXPECT_EQ(second.position(), 3);
  EXPECT_NE(write(third, sampler, 30), ids);
  EXPECT_EQ(write(second, sampler, 30), ids);
  second = both.state({1, 2, 3}, 9);
  third = std::move(second);
  EXPECT_EQ(write(third, sampler, 30), ids);
}

TEST(Library, AStateOutlivesItsModel) {
  std::optional<Both> both(std::in_place);
  auto state = both->state({1, 2, 3});
  auto copy = state;
  const auto ids = write(copy, api::Sampler(), 10);
  api::TextStream stream(*both->model->tokenizer());
  both.reset();
  EXPECT_EQ(write(state, api::Sampler(), 10), ids);
  EXPECT_EQ(state.model().vocab_size(), 257);
  EXPECT_EQ(stream.push('a'), "a");
}

TEST(Library, ASavedStateGoesOn) {
  const Both both;
  const api::Sampler sampler({.repetition_penalty = 1.5});
  auto state = both.state(random_ids(bytes_model(), 300, 1), 4);
  write(state, sampler, 10);
  state.save(both.folder / "a.state");
  auto loaded = both.model->load(both.folder / "a.state");
  EXPECT_EQ(loaded.seed(), 4u);
  EXPECT_EQ(loaded.position(), 310);
  EXPECT_TRUE(same_bits(loaded.logits(), state.logits()));
  EXPECT_EQ(write(loaded, sampler, 50), write(state, sampler, 50));
}

// What the wrapper hands on, option by option: each draw of options beside the engine's own loop.
TEST(Library, EveryOptionArrives) {
  const Both both;
  const auto tokenizer = *both.model->tokenizer();
  const auto inner = data::load_tokenizer("bytes");
  int stopped = 0, ended = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    base::Random random({seed, 81});
    const auto coin = [&] { return random.below(2) == 1; };
    api::SamplerOptions how;
    if (coin()) how.temperature = 3 * random.uniform();
    if (coin()) how.top_k = static_cast<int64_t>(1 + random.below(100));
    if (coin()) how.top_p = random.uniform();
    if (coin()) how.min_p = 0.2 * random.uniform();
    if (coin()) how.repetition_penalty = 1 + random.uniform();
    api::GenerateOptions options{.max_tokens = static_cast<int64_t>(1 + random.below(90))};
    options.ignore_eos = coin();
    options.goes_on = coin();
    options.num_logprobs = static_cast<int64_t>(random.below(3));
    if (coin()) options.stop = {"ab", std::string(1, static_cast<char>(random.below(128)))};
    std::string told;
    options.on_text = [&](std::string_view text) { told += text; };

    const auto prompt = random_ids(bytes_model(), 20, seed);
    const eval::GenerateOptions same{
        .max_tokens = options.max_tokens,
        .sampling = {how.temperature, how.top_k, how.top_p, how.min_p, how.repetition_penalty},
        .stop = options.stop,
        .ignore_eos = options.ignore_eos,
        .num_logprobs = options.num_logprobs,
        .is_stopped = {},
        .goes_on = options.goes_on};
    auto from = both.continuation(prompt, seed);
    const auto expected = eval::generate(*both.engine, from, same, inner.get());
    auto state = both.state(prompt, seed);
    const auto got = api::generate(state, api::Sampler(how), tokenizer, options);
    EXPECT_EQ(got.ids, expected.ids) << seed;
    EXPECT_EQ(got.logprobs, expected.logprobs) << seed;
    EXPECT_EQ(got.text, expected.text) << seed;
    EXPECT_EQ(told, expected.text) << seed;
    ASSERT_EQ(got.alternatives.size(), expected.alternatives.size()) << seed;
    for (size_t i = 0; i < got.alternatives.size(); ++i) {
      ASSERT_EQ(std::ssize(got.alternatives[i]), options.num_logprobs);
      EXPECT_EQ(got.alternatives[i][0].id, expected.alternatives[i][0].id);
      EXPECT_EQ(got.alternatives[i][0].logprob, expected.alternatives[i][0].logprob);
    }
    stopped += got.finish == api::Finish::stop;
    ended += got.finish == api::Finish::eos;
    EXPECT_EQ(got.finish == api::Finish::stop, expected.finish == "stop");
    EXPECT_EQ(got.finish == api::Finish::eos, expected.finish == "eos");
    EXPECT_TRUE(same_bits(state.logits(), from.logits)) << seed;
    // And by hand.
    auto again = both.state(prompt, seed);
    EXPECT_EQ(write(again, api::Sampler(how), std::ssize(got.ids)), got.ids) << seed;
  }
  EXPECT_GT(stopped, 0);
  EXPECT_GT(ended, 0);
}

// A model of 40 ids more than its tokenizer: with it, none of them is drawn, by either way.
TEST(Library, DrawsNoIdThatTheTokenizerLacks) {
  const TempFolder folder;
  auto config = bytes_model();
  config.vocab_size += 40;
  write_strong_checkpoint(config, 6, folder.path());
  const api::Model model(folder.path(), {.threads = 1});
  const api::Tokenizer tokenizer("bytes");
  const api::Sampler sampler({.temperature = 5, .repetition_penalty = 2});
  auto state = model.begin();
  for (int64_t id = 250; id < 290; ++id) state.read(id);
  auto again = state, free = state;
  const auto largest = std::ranges::max(write(free, sampler, 60));
  EXPECT_GE(largest, 257);
  const auto ids = generate(state, sampler, tokenizer, {.max_tokens = 60, .ignore_eos = true}).ids;
  EXPECT_LT(std::ranges::max(ids), 257);
  for (const auto id : ids) {
    ASSERT_EQ(sampler.draw(again, tokenizer), id);
    again.read(id);
  }
}

// A text of `stop` and a character that lie across two calls, and across a file.
TEST(Library, WhatIsHalfThereStaysInTheState) {
  const Both both;
  const auto tokenizer = *both.model->tokenizer();
  const api::Sampler sampler;
  auto whole = both.state({1, 2, 3}), parts = whole;
  const auto expected = api::generate(whole, sampler, tokenizer, {.max_tokens = 80}).text;
  std::string text;
  for (int i = 0; i < 80; ++i) {
    const api::GenerateOptions options{.max_tokens = 1, .goes_on = i < 79};
    text += api::generate(parts, sampler, tokenizer, options).text;
    parts.save(both.folder / "half.state");
    parts = both.model->load(both.folder / "half.state");
  }
  EXPECT_EQ(text, expected);
}

TEST(Library, OptionsOfTheModelArrive) {
  const TempFolder folder;
  auto config = bytes_model();
  write_strong_checkpoint(config, 5, folder.path());
  const auto ids = random_ids(config, 60, 2);
  config.window = 5;
  config.fading_tokens = 2;
  config.eidetic_tokens = 11;
  const infer::Model engine(model::TensorFolder(folder.path()), config, infer::WeightType::bf16, 1);
  const api::Model model(folder.path(), {.weights = api::WeightType::bf16,
                                         .window = 5,
                                         .fading_tokens = 2,
                                         .eidetic_tokens = 11,
                                         .threads = 2});
  EXPECT_EQ(model.threads(), 2);
  EXPECT_EQ(model.window(), 5);
  EXPECT_EQ(model.fading_tokens(), 2);
  EXPECT_EQ(model.eidetic_tokens(), 11);
  EXPECT_EQ(model.weight_type(), api::WeightType::bf16);
  EXPECT_FALSE(model.bos_token());
  EXPECT_EQ(model.eos_token(), 256);
  auto state = model.begin();
  const auto expected = read(engine, ids).logits;
  std::vector<float> logits(expected.size());
  state.read(ids, logits);
  EXPECT_TRUE(same_bits(logits, expected));
}

TEST(Library, TextComesInWholeCharacters) {
  const api::Tokenizer tokenizer("bytes");
  EXPECT_EQ(tokenizer.kind(), "bytes");
  EXPECT_EQ(tokenizer.vocab_size(), 257);
  EXPECT_EQ(tokenizer.end_of_document(), 256);
  const std::string text = "naïve 你好 🎈";
  const auto ids = tokenizer.encode(text);
  EXPECT_EQ(tokenizer.decode(ids), text);
  api::TextStream stream(tokenizer);
  std::string out;
  for (const auto id : ids) {
    const auto part = stream.push(id);
    EXPECT_TRUE(part.empty() || (static_cast<uint8_t>(part[0]) & 0xC0) != 0x80);
    out += part;
  }
  EXPECT_EQ(out, text);
  EXPECT_EQ(stream.push(0xE4), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
}

TEST(Library, LogProbabilityIsThatOfTheSoftmax) {
  const float logits[] = {0, 1, 2, -1};
  double sum = 0;
  for (int64_t id = 0; id < 4; ++id) sum += std::exp(api::log_probability(logits, id));
  EXPECT_NEAR(sum, 1, 1e-6);  // rounded to fp32
  EXPECT_NEAR(api::log_probability(logits, 2) - api::log_probability(logits, 0), 2, 1e-6);
}

TEST(Library, Version) { EXPECT_EQ(api::version(), BMOJO_LIBRARY_VERSION); }

template <typename Call>
std::string mistake(const Call& call) {
  return message_of<api::InputError>(call);
}

TEST(LibraryErrors, OfModelsAndStates) {
  const Both both;
  const auto& path = both.folder.path();
  EXPECT_TRUE(contains(mistake([&] { api::Model("no/such/folder"); }), "must exist, got none"));
  EXPECT_TRUE(begins(mistake([&] { api::Model(path, {.threads = -1}); }), "threads: must be"));
  EXPECT_TRUE(begins(mistake([&] { api::Model(path, {.threads = 5000}); }), "threads: must be"));
  EXPECT_TRUE(contains(mistake([&] { api::Model(path, {.window = 0}); }), "window"));
  EXPECT_TRUE(contains(mistake([&] { api::Model(path, {.eidetic_tokens = -1}); }), "eidetic"));
  EXPECT_TRUE(contains(mistake([&] { (void)both.model->load(path / "none"); }), "none"));
  both.folder.write("torn", "BMOJOSTA and nothing else");
  EXPECT_TRUE(contains(mistake([&] { (void)both.model->load(path / "torn"); }), "state file"));

  both.state({1}).save(path / "a.state");
  const api::Model wider(path, {.window = 9, .threads = 1});
  EXPECT_TRUE(contains(mistake([&] { (void)wider.load(path / "a.state"); }), "window must be 9"));
  const auto failure =
      message_of<api::Error>([&] { both.state({1}).save(path / "no" / "such" / "folder"); });
  EXPECT_TRUE(contains(failure, "folder")) << failure;

  auto state = both.state({1}), other = wider.begin();
  const api::Reading foreign[] = {{&other, {}}}, none[] = {{}};
  EXPECT_TRUE(contains(mistake([&] { both.model->read(foreign); }), "got one of another"));
  EXPECT_TRUE(contains(mistake([&] { both.model->read(none); }), "got none"));
  const Ids one = {2};
  const api::Reading twice[] = {{&state, one}, {&state, one}};
  EXPECT_TRUE(contains(mistake([&] { both.model->read(twice); }), "twice"));
  std::vector<float> few(5);
  EXPECT_TRUE(contains(mistake([&] { state.read(one, few); }), "257 places, got 5"));
}

// Also where the wrong id is behind what is read at once.
TEST(LibraryErrors, AWrongIdLeavesTheStateAsItWas) {
  const Both both;
  auto state = both.state({1, 2});
  for (const int64_t wrong : {int64_t{-1}, int64_t{257}, int64_t{1} << 40}) {
    Ids ids(600, 7);
    ids.push_back(wrong);
    EXPECT_TRUE(contains(mistake([&] { state.read(ids); }), "from 0 to 256"));
    EXPECT_EQ(state.position(), 2);
  }
  EXPECT_TRUE(same_bits(state.logits(), both.state({1, 2}).logits()));
}

TEST(LibraryErrors, OfDrawing) {
  const Both both;
  const auto make = [](const api::SamplerOptions& options) {
    return mistake([&] { (void)api::Sampler(options); });
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(begins(make({.temperature = -1}), "temperature: must be from 0 to"));
  EXPECT_TRUE(begins(make({.temperature = nan}), "temperature: must be from 0 to"));
  EXPECT_TRUE(begins(make({.top_k = -1}), "top_k: must be from 0 to"));
  EXPECT_TRUE(begins(make({.top_p = 1.5}), "top_p: must be from 0 to 1, got 1.5"));
  EXPECT_TRUE(begins(make({.min_p = -0.5}), "min_p: must be from 0 to 1"));
  EXPECT_TRUE(begins(make({.repetition_penalty = 0}), "repetition_penalty: must be from 0.01"));

  const api::Sampler sampler;
  const auto tokenizer = *both.model->tokenizer();
  auto fresh = both.model->begin(), state = both.state({1});
  EXPECT_TRUE(contains(mistake([&] { (void)sampler.draw(fresh); }), "must have read a token"));
  EXPECT_TRUE(contains(mistake([&] { generate(fresh, sampler); }), "must have read a token"));
  const auto refused = [&](const api::GenerateOptions& options) {
    return mistake([&] { generate(state, sampler, tokenizer, options); });
  };
  EXPECT_TRUE(begins(refused({.max_tokens = -1}), "max_tokens: must be from 0"));
  EXPECT_TRUE(begins(refused({.num_logprobs = -1}), "num_logprobs: must be from 0"));
  EXPECT_TRUE(begins(refused({.stop = {""}}), "stop: must not be empty"));
  EXPECT_TRUE(contains(mistake([&] { generate(state, sampler, {.stop = {"a"}}); }), "tokenizer"));
  EXPECT_TRUE(contains(mistake([] { (void)api::log_probability({}, 0); }), "logits = 0, got 0"));
  EXPECT_EQ(state.position(), 1);
}

TEST(LibraryErrors, BrokenWeightsAreNoText) {
  const TempFolder folder;
  const auto config = bytes_model();
  model::save_config(config, folder.path());
  std::vector<model::TensorInfo> infos;
  for (const auto& spec : model::tensor_specs(config))
    infos.push_back({spec.name, model::Dtype::f32, spec.shape});
  model::SafetensorsWriter writer(folder / model::kWeightsFile, infos, {});
  for (const auto& info : infos)
    writer.write(std::vector<std::byte>(static_cast<size_t>(model::num_elements(info.shape)) * 4,
                                        std::byte{0xFF}));  // NaN
  writer.commit();
  auto state = api::Model(folder.path(), {.threads = 1}).begin();
  state.read(7);
  const api::Sampler sampler;
  const auto drawn = message_of<api::RunError>([&] { (void)sampler.draw(state); });
  EXPECT_TRUE(contains(drawn, "logits must be finite, got NaN or infinity after 1 tokens"));
  EXPECT_EQ(message_of<api::RunError>([&] { generate(state, sampler); }), drawn);
}

TEST(LibraryErrors, OfText) {
  const Both both;
  const api::Tokenizer tokenizer("bytes");
  EXPECT_TRUE(contains(mistake([] { api::Tokenizer("nothing"); }), "which is no file"));
  for (const int64_t wrong : {int64_t{-1}, int64_t{257}, (int64_t{1} << 32) + 'a'}) {
    EXPECT_TRUE(contains(mistake([&] { (void)tokenizer.decode({&wrong, 1}); }), "from 0 to 256"));
    api::TextStream stream(tokenizer);
    EXPECT_TRUE(contains(mistake([&] { (void)stream.push(wrong); }), "from 0 to 256"));
  }
  EXPECT_TRUE(contains(mistake([&] { (void)both.model->encode_prompt(tokenizer, ""); }),
                       "prompt: must hold at least one character"));
  EXPECT_EQ(both.model->encode_prompt(tokenizer, "a\xFF"), (Ids{97, 255}));
}

TEST(LibraryErrors, WhatCallersThrowPassesThrough) {
  const Both both;
  auto state = both.state({1});
  struct Own {};
  const api::GenerateOptions options{.is_stopped = []() -> bool { throw Own{}; }};
  EXPECT_THROW(generate(state, api::Sampler(), options), Own);
  const auto asked = [](int& left) { return [&left] { return left-- == 0; }; };
  int left = 3;
  EXPECT_EQ(generate(state, api::Sampler(), {.is_stopped = asked(left)}).ids.size(), 3u);
  EXPECT_EQ(state.position(), 4);
}

}  // namespace
}  // namespace bmojo::test
