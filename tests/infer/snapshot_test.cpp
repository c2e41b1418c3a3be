#include "bmojo/infer/snapshot.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "bmojo/base/digest.h"
#include "bmojo/base/error.h"
#include "bmojo/base/random.h"
#include "tests/infer/support.h"
#include "tests/temp_folder.h"

// A state saved and loaded goes on as one that never was; a file that is not whole, or of another
// model, is refused.

namespace bmojo::infer {
namespace {

using test::contains, test::difference, test::Draw, test::message_of, test::Read, test::TempFolder;

Origin origin_of(const Draw& draw, const Model& model) {
  return {model::digest_of(model::TensorFolder(draw.folder.path())), model.type(), model.config()};
}

// Logits [count, V] of what a state goes on with.
std::vector<float> go_on(const Model& model, State& state, std::span<const int64_t> ids) {
  std::vector<float> hidden(ids.size() * static_cast<size_t>(model.config().hidden_size));
  const Input input{&state, ids};
  model.forward({&input, 1}, hidden.data());
  std::vector<float> logits(ids.size() * static_cast<size_t>(model.config().vocab_size));
  model.logits(hidden.data(), std::ssize(ids), logits.data());
  return logits;
}

Sampler some_sampler(const model::Config& config, size_t count) {
  return {.seed = UINT64_MAX,
          .counter = count,
          .recent = test::random_ids(config, 5, 1),
          .pending_utf8 = "\xe2\x82",
          .pending_stop = std::string("\n\0U", 3)};
}

// A draw's text up to a place in it.
Snapshot snapshot_of(const Draw& draw, const Model& model, size_t count) {
  Snapshot out{origin_of(draw, model), model.begin(), {}, some_sampler(draw.config, count)};
  auto logits = go_on(model, out.state, std::span(draw.ids).first(count));
  if (count > 0) out.logits.assign(logits.end() - draw.config.vocab_size, logits.end());
  return out;
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
std::string saved(const Snapshot& snapshot) {
  const TempFolder folder;
  save_snapshot(snapshot, folder / "state");
  return bytes_of(folder / "state");
}
Snapshot parsed(const std::string& bytes, const Origin* wanted = nullptr) {
  return read_snapshot(std::as_bytes(std::span(bytes)), "state", wanted);
}
std::string refusal(const std::string& bytes, const Origin* wanted = nullptr) {
  return message_of<base::Error>([&] { parsed(bytes, wanted); });
}
// With the digest of what it holds now.
std::string sealed(std::string bytes) {
  bytes.resize(bytes.size() - base::Digest::kTextSize);
  return bytes + base::digest_of_text(bytes);
}

// A small state with every memory in use.
bool is_small(const model::Config& c) {
  return c.pattern == "bmojo" && c.num_layers == 2 && c.hidden_size < 16 && c.head_size < 8 &&
         c.fading_tokens > 0 && c.eidetic_tokens > 3 && c.eidetic_tokens < 10;
}
uint64_t small_seed() {
  uint64_t seed = 2000;
  while (!is_small(test::random_model(seed))) ++seed;
  return seed;
}
struct SmallDraw : Draw {
  SmallDraw() : Draw(small_seed()) { ids = test::random_ids(config, 60, seed); }
};

TEST(Snapshot, LoadedGoesOnAsNeverSaved) {
  for (uint64_t seed = 2000; seed < 2060; ++seed) {
    Draw draw(seed);
    const auto model = draw.model(1);
    const size_t count = seed % 20 == 0 ? 0 : draw.random.below(draw.ids.size() + 1);
    auto kept = snapshot_of(draw, model, count);
    save_snapshot(kept, draw.folder / "state");
    const auto origin = origin_of(draw, model);
    auto loaded = load_snapshot(draw.folder / "state", &origin);
    EXPECT_EQ(difference(loaded.state, kept.state), "") << draw.text();
    EXPECT_TRUE(test::same_bits(loaded.logits, kept.logits)) << draw.text();
    EXPECT_EQ(loaded.sampler.seed, kept.sampler.seed);
    EXPECT_EQ(loaded.sampler.counter, kept.sampler.counter);
    EXPECT_EQ(loaded.sampler.recent, kept.sampler.recent);
    EXPECT_EQ(loaded.sampler.pending_utf8, kept.sampler.pending_utf8);
    EXPECT_EQ(loaded.sampler.pending_stop, kept.sampler.pending_stop);
    const auto rest = test::random_ids(draw.config, 50, seed);
    EXPECT_TRUE(test::same_bits(go_on(model, loaded.state, rest), go_on(model, kept.state, rest)))
        << draw.text();
    EXPECT_EQ(difference(loaded.state, kept.state), "") << draw.text();
  }
}

TEST(Snapshot, TenThousandBitFlipsAreAllDetected) {
  const SmallDraw draw;
  const auto bytes = saved(snapshot_of(draw, draw.model(1), draw.ids.size()));
  base::Random random({1});
  for (int i = 0; i < 10'000; ++i) {
    auto damaged = bytes;
    damaged[random.below(bytes.size())] ^= static_cast<char>(1 << random.below(8));
    ASSERT_NE(refusal(damaged), "");
  }
}

TEST(Snapshot, EveryTruncationIsDetected) {
  const SmallDraw draw;
  const auto bytes = saved(snapshot_of(draw, draw.model(1), draw.ids.size()));
  for (size_t size = 0; size < bytes.size(); ++size)
    ASSERT_NE(refusal(bytes.substr(0, size)), "") << size;
  EXPECT_EQ(refusal(bytes), "");
  EXPECT_NE(refusal(bytes + '\0'), "");
}

// Damage under a digest that fits is refused, or does no harm: whoever goes on with what was loaded
// reads and writes no memory but the state's (which the sanitizers watch).
TEST(Snapshot, FilesMadeToMisleadDoNoHarm) {
  const SmallDraw draw;
  const auto model = draw.model(1);
  const auto bytes = saved(snapshot_of(draw, model, draw.ids.size()));
  const auto origin = origin_of(draw, model);
  base::Random random({2});
  int loaded = 0, refused = 0;
  for (int i = 0; i < 3'000; ++i) {
    auto damaged = bytes;
    for (uint64_t n = random.below(3); n < 3; ++n)
      damaged[random.below(bytes.size())] = static_cast<char>(random.below(256));
    for (const Origin* wanted : {static_cast<const Origin*>(nullptr), &origin}) try {
        auto snapshot = parsed(sealed(damaged), wanted);
        ++loaded;
        if (wanted != nullptr) go_on(model, snapshot.state, std::span(draw.ids).first(2));
      } catch (const base::Error&) {
        ++refused;
      }
  }
  EXPECT_GT(loaded, 100);
  EXPECT_GT(refused, 100);
}

TEST(Snapshot, AnotherModelsStateIsRefused) {
  const SmallDraw draw;
  const auto model = draw.model(1);
  const auto origin = origin_of(draw, model);
  const auto bytes = saved(snapshot_of(draw, model, draw.ids.size()));
  EXPECT_EQ(refusal(bytes, &origin), "");
  auto other = origin;
  other.digest = "xxh3-128:0";
  EXPECT_TRUE(contains(refusal(bytes, &other), "must be a state of this model"));
  other = origin;
  other.type = origin.type == WeightType::f32 ? WeightType::bf16 : WeightType::f32;
  EXPECT_TRUE(contains(refusal(bytes, &other), "set --dtype"));
  other = origin;
  other.config.window += 1;
  EXPECT_TRUE(
      contains(refusal(bytes, &other), fmt::format("window must be {} as in this model, got {}",
                                                   other.config.window, origin.config.window)));
}

TEST(Snapshot, ACounterThatIsNotThePositionIsRefused) {
  const SmallDraw draw;
  auto snapshot = snapshot_of(draw, draw.model(1), 3);
  snapshot.sampler.counter = 2;
  EXPECT_TRUE(
      contains(refusal(saved(snapshot)), "sampler.counter must be the position = 3, got 2"));
}

TEST(Snapshot, AnotherVersionIsRefused) {
  const SmallDraw draw;
  auto bytes = saved(snapshot_of(draw, draw.model(1), 3));
  bytes.replace(bytes.find("\"version\":2"), 11, "\"version\":3");
  EXPECT_TRUE(contains(refusal(sealed(bytes)), "version must be 2"));
}

// Before anything is made of a size that the file claims.
TEST(Snapshot, LargeSizesAreRefusedWithoutMemory) {
  const SmallDraw draw;
  const auto bytes = saved(snapshot_of(draw, draw.model(1), 3));
  uint64_t header = 0;
  std::memcpy(&header, bytes.data() + 8, 8);
  // Behind magic and header: position, seed, counter, and the length of `recent`.
  for (const uint64_t claimed : {uint64_t{1} << 62, uint64_t{1} << 61, UINT64_MAX, uint64_t{6000}})
    for (const size_t at : {size_t{8}, 16 + header, 16 + header + 24}) {
      auto large = bytes;
      std::memcpy(large.data() + at, &claimed, 8);
      EXPECT_NE(refusal(sealed(large)), "") << at;
    }
}

TEST(Snapshot, AStateThatDoesNotFitIsNotSaved) {
  const SmallDraw draw;
  auto snapshot = snapshot_of(draw, draw.model(1), 9);
  snapshot.state.layers[0].window.pop_back();
  const TempFolder folder;
  EXPECT_TRUE(contains(message_of<base::Error>([&] { save_snapshot(snapshot, folder / "state"); }),
                       "layers.0.window must have length"));
  EXPECT_EQ(folder.num_entries(), 0u);
}

TEST(Snapshot, TheSizeDoesNotDependOnTheText) {
  for (const auto* mode : {"chunk", "sliding"}) {
    auto config = test::random_model(2007);
    config.pattern = "bmojo";
    config.window = 8;
    config.fading_tokens = 11;
    config.fading_mode = mode;
    config.eidetic_tokens = 20;
    model::validate(config);
    const TempFolder folder;
    test::write_strong_checkpoint(config, 1, folder.path());
    const Model model(model::TensorFolder(folder.path()), config, {}, 1);
    Snapshot snapshot{{"digest", model.type(), config}, model.begin(), {}, {}};
    std::vector<size_t> sizes;
    for (const int64_t end : {100, 101, 107, 1'000, 10'000}) {
      const auto ids = test::random_ids(config, end - snapshot.state.position, 5);
      go_on(model, snapshot.state, ids);
      snapshot.sampler.counter = static_cast<uint64_t>(end);
      sizes.push_back(saved(snapshot).size());
    }
    EXPECT_EQ(sizes, std::vector<size_t>(sizes.size(), sizes[0])) << mode;
  }
}

TEST(Snapshot, FilesAreKnownByTheirBeginning) {
  const TempFolder folder;
  const SmallDraw draw;
  save_snapshot(snapshot_of(draw, draw.model(1), 3), folder / "state");
  EXPECT_TRUE(is_snapshot(folder / "state"));
  EXPECT_FALSE(is_snapshot(folder.write("other", "BMOJOTOK")));
  EXPECT_FALSE(is_snapshot(folder.write("short", "BMOJ")));
  EXPECT_FALSE(is_snapshot(folder.path()));
  EXPECT_FALSE(is_snapshot(folder / "missing"));
}

}  // namespace
}  // namespace bmojo::infer
