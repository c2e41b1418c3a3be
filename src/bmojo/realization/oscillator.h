// An undamped oscillator: two registers with the last row (-1, 2 cos θ), whose poles e^{±iθ} lie on
// the unit circle. Its impulse response is sin(θ t) / sin θ.
#pragma once

#include "bmojo/realization/transfer_function.h"

namespace bmojo::realization {

TransferFunction oscillator(double theta);

// The only recurrence y_{t+2} = p y_{t+1} + q y_t that four samples obey.
struct Recurrence {
  double p, q;
  // Of z² - p z - q: negative where the poles are not real.
  double discriminant() const { return p * p + 4 * q; }
};
Recurrence recurrence_of(View four_samples);

// How near a real diagonal system of order 2 comes: the least ‖y - r a^t - s b^t‖ / ‖y‖ over all
// poles a, b of a grid of [-1.1, 1.1] and all residues r, s. This covers input-varying systems too:
// behind an impulse the input stays 0, and with it the poles stay the same.
double best_real_diagonal_fit(View y);

}  // namespace bmojo::realization
