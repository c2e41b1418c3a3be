#include "bmojo/kernels/cpu.h"

#include <fmt/ranges.h>
#include <hwy/highway.h>
#include <hwy/targets.h>
#include <xmmintrin.h>

#include "bmojo/base/error.h"

namespace bmojo::kernels {
namespace {

// MXCSR: results (FTZ, bit 15) and operands (DAZ, bit 6) that are denormal count as zero, all
// exceptions are masked (bits 7 to 12), and the rounding mode (bits 13 and 14) is the nearest.
constexpr unsigned kFloatMode = 0x9fc0;

int64_t usable_targets() { return hwy::SupportedTargets() & HWY_TARGETS; }

// 0: all.
void choose(int64_t targets) {
  hwy::SetSupportedTargetsForTest(targets);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace

FloatMode::FloatMode() : before_(_mm_getcsr()) { _mm_setcsr(kFloatMode); }
FloatMode::~FloatMode() { _mm_setcsr(before_); }

void require_simd() {
  static const bool usable = usable_targets() != 0;
  base::require(usable, "kernels: this CPU must have AVX2 and FMA, got one without");
}

std::vector<std::string> simd_targets() {
  std::vector<std::string> names;
  for (const auto target : hwy::SupportedAndGeneratedTargets())
    names.emplace_back(hwy::TargetName(target));
  return names;
}

void use_target(const std::string& name) {
  hwy::SetSupportedTargetsForTest(0);
  int64_t chosen = 0;
  for (const auto target : hwy::SupportedAndGeneratedTargets())
    if (hwy::TargetName(target) == name) chosen = target;
  base::require(chosen != 0 || name.empty(),
                "use_target: must be an instruction set of this CPU, got {}", name);
  choose(chosen);
}

void cap_target(const std::string& name) {
  hwy::SetSupportedTargetsForTest(0);
  int64_t allowed = 0;  // a better one is a lower bit
  std::vector<std::string> known;
  for (int64_t left = HWY_TARGETS; left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    known.emplace_back(hwy::TargetName(target));
    if (known.back() == name) allowed = left;
  }
  base::require(allowed != 0, "BMOJO_SIMD: must be one of {}, got '{}'", fmt::join(known, ", "),
                name);
  choose(usable_targets() & allowed);
}

void run(const ParallelFor& parallel, int64_t n, const Task& task) {
  require_simd();
  parallel(n, [&task](int64_t i) {
    const FloatMode mode;
    task(i);
  });
}

}  // namespace bmojo::kernels
