#include "bmojo/train/gradient_buckets.h"

#include <torch/torch.h>

#include <functional>
#include <stdexcept>
#include <utility>

namespace bmojo::train {
namespace {

// Called by autograd when a backward pass has added to a parameter's gradient.
class AfterGradient : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit AfterGradient(std::function<void()> call) : call_(std::move(call)) {}
  void operator()(const at::Tensor&) override { call_(); }

 private:
  std::function<void()> call_;
};

}  // namespace

GradientBuckets::GradientBuckets(const Workers& workers, std::vector<at::Tensor> parameters,
                                 int64_t bytes)
    : workers_(workers), parameters_(std::move(parameters)) {
  if (workers_.count() == 1) return;
  bucket_of_.resize(parameters_.size());
  is_there_.resize(parameters_.size());
  std::vector<size_t> members;
  int64_t filled = 0;
  for (size_t i = parameters_.size(); i-- > 0;) {
    const auto size = static_cast<int64_t>(parameters_[i].nbytes());
    if (!members.empty() && filled + size > bytes) {
      add_bucket(std::exchange(members, {}));
      filled = 0;
    }
    members.push_back(i);
    filled += size;
  }
  if (!members.empty()) add_bucket(std::move(members));
  for (size_t i = 0; i < parameters_.size(); ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(
        parameters_[i], std::make_unique<AfterGradient>([this, i] { gradient_is_there(i); }));
}

GradientBuckets::~GradientBuckets() {
  if (workers_.count() == 1) return;
  for (const auto& parameter : parameters_)
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
}

void GradientBuckets::add_bucket(std::vector<size_t> members) {
  const auto type = parameters_.front().scalar_type();
  int64_t size = 0;
  for (const auto i : members) {
    TORCH_CHECK(parameters_[i].scalar_type() == type, "gradients: parameters must be of one type");
    bucket_of_[i] = buckets_.size();
    size += parameters_[i].numel();
  }
  const auto num_members = static_cast<int64_t>(members.size());
  Bucket bucket;
  bucket.values = at::zeros({size + num_members}, type);
  bucket.present = bucket.values.narrow(0, size, num_members);
  int64_t offset = 0;
  for (const auto i : members) {
    const auto& parameter = parameters_[i];
    const auto part = bucket.values.narrow(0, offset, parameter.numel());
    bucket.gradients.push_back(part.view(parameter.sizes()));
    offset += parameter.numel();
  }
  bucket.members = std::move(members);
  buckets_.push_back(std::move(bucket));
}

void GradientBuckets::arm() {
  if (workers_.count() == 1) return;
  const std::lock_guard lock(mutex_);
  if (armed_) throw std::logic_error("gradients: armed twice without finish()");
  for (auto& bucket : buckets_) bucket.num_missing = bucket.members.size();
  is_there_.assign(parameters_.size(), false);
  num_started_ = 0;
  armed_ = true;
}

void GradientBuckets::gradient_is_there(size_t parameter) {
  const std::lock_guard lock(mutex_);
  if (!armed_) return;
  // Its sum may be under way already, without what is added now.
  if (is_there_[parameter])
    throw std::logic_error("gradients: a second backward pass between arm() and finish()");
  is_there_[parameter] = true;
  --buckets_[bucket_of_[parameter]].num_missing;
  while (num_started_ < buckets_.size() && buckets_[num_started_].num_missing == 0)
    start(buckets_[num_started_++]);
}

void GradientBuckets::finish() {
  if (workers_.count() == 1) return;
  const std::lock_guard lock(mutex_);
  if (!armed_) throw std::logic_error("gradients: finish() without arm()");
  armed_ = false;
  num_overlapped_ = num_started_;
  while (num_started_ < buckets_.size()) start(buckets_[num_started_++]);
  for (auto& bucket : buckets_) store(bucket);
}

void GradientBuckets::start(Bucket& bucket) {
  const at::NoGradGuard no_grad;
  for (size_t j = 0; j < bucket.members.size(); ++j) {
    const auto& gradient = parameters_[bucket.members[j]].grad();
    if (gradient.defined())
      bucket.gradients[j].copy_(gradient);
    else
      bucket.gradients[j].zero_();
    bucket.present[static_cast<int64_t>(j)].fill_(gradient.defined() ? 1 : 0);
  }
  bucket.sum = workers_.start_sum(bucket.values);
}

void GradientBuckets::store(Bucket& bucket) {
  const at::NoGradGuard no_grad;
  std::exchange(bucket.sum, nullptr)->wait();
  for (size_t j = 0; j < bucket.members.size(); ++j) {
    if (bucket.present[static_cast<int64_t>(j)].item<double>() == 0) continue;
    auto& gradient = parameters_[bucket.members[j]].mutable_grad();
    if (gradient.defined())
      gradient.copy_(bucket.gradients[j]);
    else
      gradient = bucket.gradients[j].clone();
  }
}

}  // namespace bmojo::train
