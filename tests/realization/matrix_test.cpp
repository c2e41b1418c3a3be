#include "bmojo/realization/matrix.h"

#include <gtest/gtest.h>

#include <cmath>

#include "bmojo/realization/random.h"

namespace bmojo::realization {
namespace {

TEST(Matrix, SingularValuesOfAKnownMatrix) {
  Matrix a(3, 2);
  a.values = {3, 0, 0, 4, 0, 0};
  const Vector values = singular_values(a);
  EXPECT_EQ(values, (Vector{4, 3}));
  Matrix b(2, 2);
  b.values = {1, 1, 0, 1};  // the golden ratio and its inverse
  const double golden = (1 + std::sqrt(5.0)) / 2;
  EXPECT_NEAR(singular_values(b)[0], golden, 1e-15);  // a handful of roundings
  EXPECT_NEAR(singular_values(b)[1], 1 / golden, 1e-15);
}

TEST(Matrix, RankOfAProduct) {
  Random random(1);
  for (size_t inner = 1; inner <= 5; ++inner) {
    const Matrix product = random.gaussians(7, inner) * random.gaussians(inner, 5);
    EXPECT_EQ(rank(product, 1e-12), inner);  // rounding leaves about 1e-16 in place of 0
    EXPECT_EQ(rank(transpose(product), 1e-12), inner);
  }
}

TEST(Random, DependsOnTheSeedAloneAndIsGaussian) {
  EXPECT_EQ(Random(7).gaussians(5), Random(7).gaussians(5));
  EXPECT_NE(Random(7).gaussians(5), Random(8).gaussians(5));
  const Vector x = Random(1).gaussians(100000);
  double mean = 0, second = 0, fourth = 0;
  for (double each : x) {
    mean += each / 1e5;
    second += each * each / 1e5;
    fourth += each * each * each * each / 1e5;
  }
  // Five standard deviations of each mean: 1, √2 and √96 over √100,000.
  EXPECT_NEAR(mean, 0, 0.016);
  EXPECT_NEAR(second, 1, 0.023);
  EXPECT_NEAR(fourth, 3, 0.16);
}

}  // namespace
}  // namespace bmojo::realization
