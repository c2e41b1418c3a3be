#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "bmojo/train/launch.h"

namespace bmojo::train {

// A sum that is under way. Its tensor must be left alone until wait() has returned.
class PendingSum {
 public:
  virtual ~PendingSum() = default;
  virtual void wait() = 0;
};

// This process as one of count() equal ones. Every call below is made by all of them, in the same
// order, and gives all of them the same bits. Alone, a call changes nothing and returns at once.
//
// A worker that has ended is noticed by the others in their next call, which throws LostWorker. One
// that is slow, while it saves or validates, is waited for. One on another machine that has fallen
// silent ends the process (Heartbeat). Copies share the connections.
class Workers {
 public:
  Workers() = default;  // alone
  // Waits for the others to come, for five minutes at most.
  static Workers join(const Place& place);

  int rank() const { return rank_; }
  int count() const { return count_; }
  bool first() const { return rank_ == 0; }

  void sum(at::Tensor& tensor) const;  // in place
  std::vector<double> sum(std::vector<double> values) const;
  // The sum as it goes on beside other work; the tensor must be contiguous.
  std::shared_ptr<PendingSum> start_sum(const at::Tensor& tensor) const;
  double max(double value) const;  // a NaN counts as infinity
  void barrier() const;
  // Error on all of them where not all have the same text. `what` names it.
  void require_same(const std::string& what, const std::string& text) const;

 private:
  struct Group;
  std::shared_ptr<const Group> group_;  // none: alone
  int rank_ = 0, count_ = 1;
};

}  // namespace bmojo::train
