// Counts allocations through malloc, which this file replaces for its whole program.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
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

// work() once on each thread of a pool, all at the same time. Threads have scratch of their own,
// which they make with their first tasks, and which of them takes a task is up to chance. Inside a
// task a model reads on the task's thread alone: what is read here makes the scratch of that
// thread.
template <typename Work>
void on_each_thread(base::ThreadPool& pool, const Work& work) {
  std::barrier all_are_here(pool.threads());
  pool.run(pool.threads(), [&](int64_t) {
    all_are_here.arrive_and_wait();
    work();
  });
}

// A text that is read one token after the other, their logits among it.
class Text {
 public:
  explicit Text(const Model& model) : model_(model), state_(model.begin()) {}

  void read(int64_t until) {
    while (state_.position < until) {
      const auto id =
          static_cast<int64_t>(random_.below(static_cast<uint64_t>(model_.config().vocab_size)));
      const Input input{&state_, {&id, 1}};
      model_.forward({&input, 1}, hidden_.data());
      model_.logits(hidden_.data(), 1, logits_.data());
    }
  }

 private:
  const Model& model_;
  State state_;
  base::Random random_{{11}};
  std::vector<float> hidden_ = std::vector<float>(static_cast<size_t>(model_.config().hidden_size));
  std::vector<float> logits_ = std::vector<float>(static_cast<size_t>(model_.config().vocab_size));
};

Model make_model(const model::Config& config, int threads) {
  const TempFolder folder;
  test::write_strong_checkpoint(config, 1, folder.path());
  return Model(model::TensorFolder(folder.path()), config, {}, threads);
}

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

// Large enough for threads to share the products, the scan and the attention of a step.
model::Config wide(const std::string& mode) {
  auto c = tiny(mode);
  c.hidden_size = c.mlp_size = 200;
  c.ssm_inner_size = 300;
  c.num_heads = 16;
  c.num_kv_heads = 8;
  c.head_size = 32;
  c.window = 80;
  c.fading_tokens = 40;
  c.eidetic_tokens = 60;
  model::validate(c);
  return c;
}

void expect_no_allocation(const model::Config& config, int threads, int64_t until_full,
                          int64_t until) {
  const Model model = make_model(config, threads);
  on_each_thread(model.pool(), [&] { Text(model).read(until_full); });
  Text text(model);
  text.read(until_full);
  const int64_t before = allocations;
  text.read(until);
  EXPECT_EQ(allocations - before, 0) << threads << " threads, " << test::describe(config);
}

// Once the memories are full, in every kind of layer.
TEST(Stream, AStepAllocatesNothing) {
  if (!kCounts) GTEST_SKIP() << "a sanitizer has its own malloc";
  for (uint64_t seed = 3000; seed < 3040; ++seed) {
    auto config = test::random_model(seed);
    config.eidetic_tokens = std::min<int64_t>(config.eidetic_tokens, 30);
    if (config.window == 0) config.window = 12;  // one without an end grows
    for (const int threads : {1, 2}) expect_no_allocation(config, threads, 100, 200);
  }
}

TEST(Stream, NorDoesAStepThatThreadsShare) {
  if (!kCounts) GTEST_SKIP() << "a sanitizer has its own malloc";
  for (const auto* mode : {"chunk", "sliding"}) expect_no_allocation(wide(mode), 2, 300, 500);
}

// The way that generate, chat and the library take: eight texts, a token of each at a time.
class Batch {
 public:
  explicit Batch(const eval::LanguageModel& model) : model_(model) {
    for (auto& text : texts_) text = eval::begin(model);
  }

  void read(int64_t until) {
    for (; position_ < until; ++position_) {
      std::array<int64_t, 8> ids{};
      std::array<eval::Prompt, 8> prompts;
      for (size_t i = 0; i < texts_.size(); ++i) {
        ids[i] = (position_ * static_cast<int64_t>(7 + i) + 3) % model_.config().vocab_size;
        prompts[i] = {&texts_[i], {&ids[i], 1}};
      }
      eval::read_together(model_, prompts);
    }
  }

 private:
  const eval::LanguageModel& model_;
  std::array<eval::Continuation, 8> texts_;
  int64_t position_ = 0;
};

TEST(Stream, NorDoesAStepOfABatchWithItsLogits) {
  if (!kCounts) GTEST_SKIP() << "a sanitizer has its own malloc";
  for (const int threads : {1, 2}) {
    const NativeLanguageModel model(
        std::make_unique<const Model>(make_model(tiny("chunk"), threads)), [] { return "digest"; });
    on_each_thread(model.model().pool(), [&] { Batch(model).read(100); });
    Batch batch(model);
    batch.read(100);
    const int64_t before = allocations;
    batch.read(300);
    EXPECT_EQ(allocations, before) << threads << " threads";
  }
}

// All that a text may leave behind is in the first 10,000 tokens of it.
TEST(MillionTokens, PassThroughInConstantMemory) {
  if (!kCounts) GTEST_SKIP() << "a sanitizer has its own malloc";
  for (const auto* mode : {"chunk", "sliding"}) {
    const Model model = make_model(tiny(mode), 1);
    Text text(model);
    text.read(10'000);
    const int64_t peak = base::process_memory("VmHWM"), before = allocations;
    text.read(mode == std::string("chunk") ? 1'000'000 : 100'000);
    EXPECT_EQ(allocations, before) << mode;
    // The kernel counts pages in batches; a byte a token would be more.
    EXPECT_LE(base::process_memory("VmHWM") - peak, 512 << 10) << mode;
    EXPECT_GT(peak, 0);
  }
}

}  // namespace
}  // namespace bmojo::infer
