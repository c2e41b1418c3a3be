#include "bmojo/train/progress_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "bmojo/base/progress.h"
#include "bmojo/eval/evaluate.h"

namespace bmojo::train {

std::string progress_text(const ProgressNumbers& n) {
  auto text = fmt::format("step {}/{}", n.step, n.num_steps);
  if (n.micro_batch > 0) text += fmt::format(" + {} %", 100 * n.micro_batch / n.num_micro);
  if (!n.is_first)
    text += fmt::format("  loss {}  {}  {} left", eval::loss_text(n.loss),
                        base::si(n.tokens_per_second, "tok/s"), base::clock_text(n.seconds_left));
  return text + "  " + base::si(static_cast<double>(n.memory), "B");
}

double seconds_left(int64_t num_steps_left, double pace, double since_last_step) {
  const auto steps = static_cast<double>(num_steps_left);
  return steps * pace - std::min(since_last_step, pace);
}

}  // namespace bmojo::train
