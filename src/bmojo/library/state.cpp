#include <utility>

#include "bmojo/eval/prompt.h"
#include "bmojo/library/access.h"

namespace bmojo::v0 {

using library::guarded, library::guarded_files;

State::State(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
State::State(const State& other)
    : impl_(std::make_unique<Impl>(other.impl_->model, other.impl_->at.copy())) {}
State::State(State&& other) noexcept = default;
State& State::operator=(const State& other) { return *this = State(other); }
State& State::operator=(State&& other) noexcept = default;
State::~State() = default;

void State::read(std::span<const std::int64_t> ids) {
  const Reading reading{this, ids};
  model().read({&reading, 1});
}

void State::read(std::int64_t id) { read({&id, 1}); }

void State::read(std::span<const std::int64_t> ids, std::span<float> logits) {
  guarded([&] {
    const auto& engine = *impl_->model->engine;
    const auto wanted = ids.size() * static_cast<size_t>(engine.config().vocab_size);
    base::require(logits.size() == wanted, "read: logits must have {} places, got {}", wanted,
                  logits.size());
    const eval::Prompt prompt{&impl_->at, ids, logits.data()};
    eval::read_together(engine, {&prompt, 1});
  });
}

std::span<const float> State::logits() const noexcept { return impl_->at.logits; }
std::int64_t State::position() const noexcept { return impl_->at.memory->position(); }
std::uint64_t State::seed() const noexcept { return impl_->at.seed; }
void State::set_seed(std::uint64_t seed) noexcept { impl_->at.seed = seed; }

void State::save(const std::filesystem::path& file) const {
  guarded_files([&] { impl_->model->engine->save(impl_->at, file); });
}

Model State::model() const noexcept { return Access::make_model(impl_->model); }

}  // namespace bmojo::v0
