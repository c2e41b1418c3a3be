#include "bmojo/kernels/negative_exp.h"

#include "bmojo/kernels/cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bmojo/kernels/negative_exp.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "bmojo/kernels/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bmojo::kernels::HWY_NAMESPACE {

void negative_exp_of(const float* a_log, int64_t n, float* A) {
  run(serial_for, 1, [&](int64_t) HWY_ATTR {
    over_row(n, [&](int64_t i, int64_t count)
                    BMOJO_BODY { store(hn::Neg(exp(load(a_log + i, count))), A + i, count); });
  });
}

}  // namespace bmojo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bmojo::kernels {

HWY_EXPORT(negative_exp_of);

void negative_exp(const float* a_log, int64_t n, float* A) {
  HWY_DYNAMIC_DISPATCH(negative_exp_of)(a_log, n, A);
}

}  // namespace bmojo::kernels
#endif
