// `bmojo-kernels`: every timed case of bench/, by its kernel and by the reference, forward and
// backward; one JSON object a line, without "backward" where there is no gradient.
// tools/bench.py sets torch's own operations beside it.
#include <malloc.h>
#include <stdlib.h>
#include <torch/torch.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "bench/cases.h"
#include "bmojo/base/error.h"
#include "bmojo/base/json.h"
#include "bmojo/kernels/cpu.h"
#include "bmojo/nn/ops/fused.h"

namespace bmojo::bench {
namespace {

struct Options {
  std::string only, target;
  int64_t repeat = 5, threads = 0;
};

// Infinite: there is no such pass.
struct Seconds {
  double forward = INFINITY, backward = INFINITY;
};

// In a training step other layers run between two passes of one, so each timed pass finds its
// tensors in memory, not in a cache: twice the last level is read and written before it.
class Caches {
 public:
  Caches() : other_(at::zeros({bytes() / 4}, at::kInt)) {}
  void flush() { other_.add_(1); }

 private:
  static int64_t bytes() {
    // Not every system tells; some tell the sum over the sockets.
    constexpr int64_t kMebibyte = 1 << 20;
    return std::clamp<int64_t>(2 * sysconf(_SC_LEVEL3_CACHE_SIZE), 64 * kMebibyte, 512 * kMebibyte);
  }
  at::Tensor other_;
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Tensors differentiable(const Tensors& tensors) {
  Tensors out;
  for (const auto& x : tensors)
    if (x.requires_grad()) out.push_back(x);
  return out;
}

// Gradients of a loss in which each element has its own weight: given, so that no loss is timed.
Tensors fixed_weights(const Tensors& outputs) {
  Tensors weights;
  for (const auto& y : outputs)
    weights.push_back(
        (at::arange(y.numel(), at::kDouble) * 0.7 + 0.3).sin().view(y.sizes()).to(y.scalar_type()));
  return weights;
}

// Best of the repeats after two warm-ups.
Seconds measure(const Case& c, int64_t repeat, Caches& caches) {
  auto inputs = c.make();
  for (auto& x : inputs)
    if (x.is_floating_point()) x.requires_grad_(true);
  const auto sources = differentiable(inputs);
  const auto weights = fixed_weights(differentiable(c.run(inputs)));
  Seconds best;
  for (int64_t i = -2; i < repeat; ++i) {
    const auto timed = [&](double& seconds, const auto& pass) {
      if (i >= 0) caches.flush();
      const double start = now();
      pass();
      if (i >= 0) seconds = std::min(seconds, now() - start);
    };
    Tensors outputs;
    timed(best.forward, [&] { outputs = differentiable(c.run(inputs)); });
    if (outputs.empty()) continue;
    timed(best.backward, [&] {
      torch::autograd::grad(outputs, sources, weights, /*retain_graph=*/false,
                            /*create_graph=*/false, /*allow_unused=*/true);
    });
  }
  return best;
}

base::Json describe(const Case& c, int64_t repeat, Caches& caches) {
  auto shapes = base::Json::array();
  for (const auto& x : c.make()) shapes.push_back(x.sizes().vec());
  const auto fused = measure(c, repeat, caches);
  const nn::ReferenceOnly reference_only;
  const auto reference = measure(c, repeat, caches);
  const auto pass = [](double seconds, double reference_seconds, const Work& work) -> base::Json {
    return {{"seconds", seconds},
            {"reference_seconds", reference_seconds},
            {"flops", work.flops},
            {"bytes", work.bytes}};
  };
  base::Json line = {{"kernel", c.kernel},
                     {"name", c.name},
                     {"inputs", shapes},
                     {"threads", at::get_num_threads()},
                     {"forward", pass(fused.forward, reference.forward, c.forward)}};
  if (std::isfinite(fused.backward))
    line["backward"] = pass(fused.backward, reference.backward, c.backward);
  if (c.gradient_in_forward) line["gradient_in_forward"] = true;
  return line;
}

void run(const Options& options) {
  if (options.threads > 0) at::set_num_threads(static_cast<int>(options.threads));
  kernels::use_target(options.target);
  bool found = false;
  Caches caches;
  for (const auto& c : all_cases()) {
    // A case that is asked for by name runs whether the benchmark times it or not.
    if (options.only.empty() ? !c.timed : options.only != c.kernel + "/" + c.name) continue;
    found = true;
    fmt::print("{}\n", describe(c, options.repeat, caches).dump());
    std::fflush(stdout);  // whoever reads has each result as it comes
  }
  base::require(found, "--case: '{}' is not a case; use KERNEL/NAME of bench/*_cases.cpp",
                options.only);
}

}  // namespace
}  // namespace bmojo::bench

int main(int argc, char** argv) {
  // As in bmojo-torch: no AMX, and freed memory is kept for the next repeat.
  setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", /*overwrite=*/0);
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, -1);
  bmojo::bench::Options options;
  CLI::App app("Speed of every kernel and of its reference, one JSON object a line",
               "bmojo-kernels");
  const CLI::Range counts(int64_t{1}, int64_t{1} << 20);
  app.add_option("--case", options.only, "Only this one")->option_text("KERNEL/NAME");
  app.add_option("--repeat", options.repeat, "Timed repeats after two warm-ups; the best counts")
      ->check(counts)
      ->option_text("N [5]");
  app.add_option("--threads", options.threads, "Threads (default: all cores)")
      ->check(counts)
      ->option_text("N");
  app.add_option("--target", options.target, "Instruction set, such as AVX2 (default: the best)")
      ->option_text("NAME");
  CLI11_PARSE(app, argc, argv);
  try {
    bmojo::bench::run(options);
  } catch (const bmojo::base::Error& mistake) {
    fmt::print(stderr, "bmojo-kernels: {}\n", mistake.what());
    return 2;
  } catch (const std::exception& failure) {
    fmt::print(stderr, "bmojo-kernels: {}\n", failure.what());
    return 1;
  }
}
