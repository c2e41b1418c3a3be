#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "bmojo/train/workers.h"

namespace bmojo::train {

// Sums the gradients of all workers while the backward pass still computes the rest of them.
//
//   for (…) loss.backward();   // every micro-batch but the last: gradients add up as usual
//   buckets.arm();
//   loss.backward();           // a bucket whose gradients are all there is summed at once
//   buckets.finish();          // now every gradient is the sum over the workers
//
// The parameters are cut into buckets of about `bytes`, from the last one to the first: the order
// in which a backward pass finishes them. Buckets start in that order on every worker, a full one
// waiting for those before it, so that what is added to what never depends on timing. A parameter
// without a gradient adds nothing; when no worker has one, there is none afterwards either.
//
// Between arm() and finish() there must be one backward pass and no other call of the workers.
// Alone, nothing happens at all.
class GradientBuckets {
 public:
  // The parameters are of one type.
  GradientBuckets(const Workers& workers, std::vector<at::Tensor> parameters,
                  int64_t bytes = int64_t{4} << 20);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  void arm();
  void finish();

  size_t num_buckets() const { return buckets_.size(); }
  // Of those, how many started before the last finish().
  size_t num_overlapped() const { return num_overlapped_; }

 private:
  struct Bucket {
    std::vector<size_t> members;        // of parameters_
    at::Tensor values;                  // the members' gradients, then `present`
    std::vector<at::Tensor> gradients;  // parts of `values` in the members' shapes
    at::Tensor present;                 // a number each: how many workers have that gradient
    size_t num_missing = 0;             // members whose gradient is not there yet
    std::shared_ptr<PendingSum> sum;
  };

  void add_bucket(std::vector<size_t> members);
  void gradient_is_there(size_t parameter);
  void start(Bucket& bucket);
  void store(Bucket& bucket);

  Workers workers_;
  std::vector<at::Tensor> parameters_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> bucket_of_;  // a parameter each
  std::vector<bool> is_there_;     // likewise

  std::mutex mutex_;  // hooks run on autograd's threads
  bool armed_ = false;
  size_t num_started_ = 0, num_overlapped_ = 0;
};

}  // namespace bmojo::train
