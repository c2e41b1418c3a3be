// Counts allocations through malloc, which this file replaces for its whole program.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>

#include "bmojo/base/memory.h"
#include "bmojo/eval/prompt.h"
#include "bmojo/infer/language_model.h"
#include "tests/infer/support.h"
#include "tests/temp_folder.h"

static std::atomic<int64_t> allocations = 0;
// A sanitizer has its own malloc.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kCounts = false;
#else
constexpr bool kCounts = true;

extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* block, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) noexcept {
  ++allocations;
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) noexcept {
  ++allocations;
  return __libc_calloc(count, size);
}
void* realloc(void* block, size_t size) noexcept {
  ++allocations;
  return __libc_realloc(block, size);
}
void* aligned_alloc(size_t alignment, size_t size) noexcept {
  ++allocations;
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** block, size_t alignment, size_t size) noexcept {
  ++allocations;
  *block = __libc_memalign(alignment, size);
  return *block == nullptr ? ENOMEM : 0;
}
}
#endif

namespace bmojo::infer {
namespace {

using test::TempFolder;

class Stream {
 public:
  explicit Stream(const model::Config& config)
      : config_(config), model_(make(config)), state_(model_.begin()) {}

  // One token after the other, their logits among it.
  void read(int64_t until) {
    while (state_.position < until) {
      const auto id =
          static_cast<int64_t>(random_.below(static_cast<uint64_t>(config_.vocab_size)));
      const Input input{&state_, {&id, 1}};
      model_.forward({&input, 1}, hidden_.data());
      model_.logits(hidden_.data(), 1, logits_.data());
    }
  }

 private:
  // On one thread: others have scratch of their own, which they make with their first task.
  static Model make(const model::Config& config) {
    const TempFolder folder;
    test::write_strong_checkpoint(config, 1, folder.path());
    return Model(model::TensorFolder(folder.path()), config, {}, 1);
  }

  model::Config config_;
  Model model_;
  State state_;
  base::Random random_{{11}};
  std::vector<float> hidden_ = std::vector<float>(static_cast<size_t>(config_.hidden_size));
  std::vector<float> logits_ = std::vector<float>(static_cast<size_t>(config_.vocab_size));
};

// bmojo-tiny with everything smaller.
model::Config tiny(const std::string& mode) {
  model::Config c = model::preset("bmojo-tiny");
  c.vocab_size = 16;
  c.hidden_size = c.ssm_inner_size = 16;
  c.num_layers = 1;
  c.ssm_state_size = 2;
  c.ssm_dt_rank = 1;
  c.num_heads = 2;
  c.num_kv_heads = 1;
  c.head_size = 8;
  c.window = 16;
  c.fading_tokens = 4;
  c.fading_mode = mode;
  c.eidetic_tokens = 8;
  c.mlp_size = 16;
  c.bos_token_id = c.eos_token_id = -1;
  model::validate(c);
  return c;
}

// Once the memories are full, in every kind of layer.
TEST(Stream, AStepAllocatesNothing) {
  if (!kCounts) GTEST_SKIP() << "a sanitizer has its own malloc";
  for (uint64_t seed = 3000; seed < 3040; ++seed) {
    auto config = test::random_model(seed);
    config.eidetic_tokens = std::min<int64_t>(config.eidetic_tokens, 30);
    if (config.window == 0) config.window = 12;  // one without an end grows
    Stream stream(config);
    stream.read(100);
    const int64_t before = allocations;
    stream.read(200);
    EXPECT_EQ(allocations - before, 0) << test::describe(config);
  }
}

// The way that generate, chat and the library take: eight texts, a token of each at a time.
TEST(Stream, NorDoesAStepOfABatchWithItsLogits) {
  if (!kCounts) GTEST_SKIP() << "a sanitizer has its own malloc";
  const TempFolder folder;
  const auto config = tiny("chunk");
  test::write_strong_checkpoint(config, 1, folder.path());
  const NativeLanguageModel model(
      std::make_unique<const Model>(model::TensorFolder(folder.path()), config, std::nullopt, 1),
      [] { return "digest"; });
  std::vector<eval::Continuation> texts;
  for (int i = 0; i < 8; ++i) texts.push_back(eval::begin(model));
  const auto step = [&](int64_t t) {
    std::array<int64_t, 8> ids{};
    std::array<eval::Prompt, 8> prompts;
    for (size_t i = 0; i < texts.size(); ++i) {
      ids[i] = (t * static_cast<int64_t>(7 + i) + 3) % config.vocab_size;
      prompts[i] = {&texts[i], {&ids[i], 1}};
    }
    eval::read_together(model, prompts);
  };
  for (int64_t t = 0; t < 100; ++t) step(t);
  const int64_t before = allocations;
  for (int64_t t = 100; t < 300; ++t) step(t);
  EXPECT_EQ(allocations, before);
}

// All that a text may leave behind is in the first 10,000 tokens of it.
TEST(MillionTokens, PassThroughInConstantMemory) {
  if (!kCounts) GTEST_SKIP() << "a sanitizer has its own malloc";
  for (const auto* mode : {"chunk", "sliding"}) {
    Stream stream(tiny(mode));
    stream.read(10'000);
    const int64_t peak = base::process_memory("VmHWM"), before = allocations;
    stream.read(mode == std::string("chunk") ? 1'000'000 : 100'000);
    EXPECT_EQ(allocations, before) << mode;
    // The kernel counts pages in batches; a byte a token would be more.
    EXPECT_LE(base::process_memory("VmHWM") - peak, 512 << 10) << mode;
    EXPECT_GT(peak, 0);
  }
}

}  // namespace
}  // namespace bmojo::infer
