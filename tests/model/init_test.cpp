#include "bmojo/model/init.h"

#include <gtest/gtest.h>

#include <numeric>

#include "bmojo/model/checkpoint.h"
#include "tests/temp_folder.h"

namespace bmojo {
namespace {

// Any cut of the work gives the same weights.
TEST(Init, PiecesAreTheWhole) {
  const auto config = preset("bmojo-tiny");
  for (const auto& spec : tensor_specs(config)) {
    const int64_t size = std::min<int64_t>(num_elements(spec.shape), 5000);
    std::vector<float> whole(size), part(size);
    fill_fresh(config, spec, 3, 0, whole);
    for (int64_t begin = 0; begin < size; begin += 777)
      fill_fresh(config, spec, 3, begin,
                 std::span(part).subspan(begin, std::min<int64_t>(777, size - begin)));
    EXPECT_EQ(whole, part) << spec.name;
  }
}

TEST(Init, DrawsDoNotRepeat) {
  const auto config = preset("bmojo-tiny");
  const TensorSpec spec{"embedding.weight", {200000, 1}, Init::embedding};
  std::vector<float> values(200000);
  fill_fresh(config, spec, 1, 0, values);
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / 200000;
  EXPECT_NEAR(mean, 0, 4 * 0.02 / std::sqrt(200000.0));  // four standard errors
  double correlation = 0;
  for (size_t i = 1; i < values.size(); ++i) correlation += values[i] * values[i - 1];
  EXPECT_NEAR(correlation / 200000 / (0.02 * 0.02), 0, 4 / std::sqrt(200000.0));
}

TEST(Init, WritesACheckpoint) {
  const test::TempFolder folder;
  auto config = preset("hybrid-tiny");
  config.vocab_size = 50;
  config.tied_embeddings = false;
  write_fresh_checkpoint(config, 1, folder.path() / "a");
  write_fresh_checkpoint(config, 1, folder.path() / "b");
  write_fresh_checkpoint(config, 2, folder.path() / "c");
  const auto digest = [&](const char* name) {
    const Checkpoint checkpoint(folder.path() / name);
    EXPECT_EQ(checkpoint.config, config);
    return checkpoint.tensors.files()[0]->metadata().at("bmojo.digest");
  };
  EXPECT_EQ(digest("a"), digest("b"));
  EXPECT_NE(digest("a"), digest("c"));
}

}  // namespace
}  // namespace bmojo
