#pragma once

#include <cstdint>
#include <string>

namespace bmojo::train {

// Of the progress line.
struct ProgressNumbers {
  int64_t step = 0, num_steps = 0;
  int64_t micro_batch = 0, num_micro = 1;  // of the step under way, done
  bool is_first = true;                    // no step is done yet: the rest is not known
  double loss = 0, tokens_per_second = 0, seconds_left = 0;
  int64_t memory = 0;  // bytes
};
// "step 120/2000  loss 3.2140  41.2 ktok/s  3:20 left  1.21 GB": at most 79 columns for steps of
// six digits. In the middle of a step, which may take minutes, "step 120/2000 + 25 %" and the
// numbers of the last one.
std::string progress_text(const ProgressNumbers& numbers);

// `pace`: seconds a step with all that comes between steps, the mean of whole ones. The step under
// way counts down as far as it may take.
double seconds_left(int64_t num_steps_left, double pace, double since_last_step);

}  // namespace bmojo::train
