#include "bmojo/model/init.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bmojo/model/checkpoint.h"
#include "tests/temp_folder.h"

namespace bmojo::model {
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

// softplus(b_Δ) fills 0.001 … 0.1 evenly on a logarithmic scale.
TEST(Init, StepSizesAreLogUniform) {
  const TensorSpec spec{"layers.0.ssm.dt_proj.bias", {200000}, Init::dt_bias};
  std::vector<float> values(200000);
  fill_fresh(preset("bmojo-tiny"), spec, 1, 0, values);
  double low = 1, high = 0, sum = 0;
  for (const double value : values) {
    const double step = std::log1p(std::exp(value));
    low = std::min(low, step);
    high = std::max(high, step);
    sum += std::log(step);
  }
  // The outermost of 200,000 draws lie within a few times log(100) / 200,000 of the ends.
  EXPECT_NEAR(low, 0.001, 1e-6);
  EXPECT_NEAR(high, 0.1, 1e-4);
  const double deviation = std::log(100.0) / std::sqrt(12.0);
  EXPECT_NEAR(sum / 200000, std::log(0.01), 4 * deviation / std::sqrt(200000.0));
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
}  // namespace bmojo::model
