#include "bmojo/realization/diagonal_system.h"

#include <algorithm>

#include "bmojo/realization/registers.h"
#include "bmojo/realization/transfer_function.h"

namespace bmojo::realization {

Vector outputs(const DiagonalSystem& system, View u) {
  return outputs(VaryingSystem(u.size(), system), u);
}

Vector outputs(const VaryingSystem& systems, View u) {
  Vector x(systems.empty() ? 0 : systems[0].order()), y(u.size());
  for (size_t t = 0; t < u.size(); ++t) {
    const auto& [a, b, c, d] = systems[t];
    for (size_t i = 0; i < x.size(); ++i) x[i] = a[i] * x[i] + b[i] * u[t];
    y[t] = dot(c, x) + d * u[t];
  }
  return y;
}

Vector direct_sum_outputs(const VaryingSystem& systems, View u) {
  std::vector<Registers> parts(systems.empty() ? 0 : systems[0].order(), Registers(1, 1));
  Vector y(u.size());
  for (size_t t = 0; t < u.size(); ++t) {
    const auto& [a, b, c, d] = systems[t];
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i].step(companion(Vector{a[i]}), Vector{b[i] * u[t]});
      y[t] += parts[i].read(Vector{c[i]})[0];
    }
    y[t] += d * u[t];
  }
  return y;
}

Vector instantaneous_companion_outputs(const VaryingSystem& systems, View u) {
  Registers registers(systems.empty() ? 0 : systems[0].order(), 1);
  Vector y(u.size());
  for (size_t t = 0; t < u.size(); ++t) {
    const TransferFunction frozen = transfer_function(systems[t]);
    y[t] = registers.read(frozen.numerator)[0] + frozen.feedthrough * u[t];
    registers.step(companion(frozen.last_row()), u.subspan(t, 1));
  }
  return y;
}

DiagonalSystem without_cancellations(const DiagonalSystem& system) {
  DiagonalSystem out{.a = {}, .b = {}, .c = {}, .d = system.d};
  for (size_t i = 0; i < system.order(); ++i) {
    const double residue = system.b[i] * system.c[i];
    const auto same = std::find(out.a.begin(), out.a.end(), system.a[i]);
    if (same != out.a.end()) {
      out.c[same - out.a.begin()] += residue;
    } else {
      out.a.push_back(system.a[i]);
      out.b.push_back(1);
      out.c.push_back(residue);
    }
  }
  for (size_t i = out.order(); i-- > 0;) {
    if (out.c[i] != 0) continue;
    for (Vector* part : {&out.a, &out.b, &out.c}) part->erase(part->begin() + i);
  }
  return out;
}

}  // namespace bmojo::realization
