#include <utility>

#include "bmojo/eval/prompt.h"
#include "bmojo/library/access.h"
#include "bmojo/model/checkpoint.h"

namespace bmojo::v0 {

using library::guarded, library::guarded_files;
namespace {

std::shared_ptr<const model::Checkpoint> checkpoint_of(const std::filesystem::path& folder) {
  return std::make_shared<const model::Checkpoint>(model::checkpoint_folder(folder),
                                                   model::Checkpoint::Packed::allowed);
}

model::Config config_of(const model::Checkpoint& checkpoint, const ModelOptions& options) {
  auto config = checkpoint.config;
  config.window = options.window.value_or(config.window);
  config.fading_tokens = options.fading_tokens.value_or(config.fading_tokens);
  config.eidetic_tokens = options.eidetic_tokens.value_or(config.eidetic_tokens);
  model::validate(config);
  return config;
}

std::optional<infer::WeightType> type_of(const ModelOptions& options) {
  if (!options.weights) return {};
  return *options.weights == WeightType::bf16 ? infer::WeightType::bf16 : infer::WeightType::f32;
}

std::optional<std::int64_t> token(std::int64_t id) {
  return id >= 0 ? std::optional(id) : std::nullopt;
}

}  // namespace

std::string_view version() noexcept { return BMOJO_LIBRARY_VERSION; }

Model::Model(const std::filesystem::path& folder, const ModelOptions& options)
    : impl_(guarded_files([&] {
        base::require(options.threads >= 0, "threads: must be at least 0, got {}", options.threads);
        const auto checkpoint = checkpoint_of(folder);
        auto engine = infer::open_native(checkpoint, config_of(*checkpoint, options),
                                         type_of(options), options.threads);
        return std::make_shared<const Impl>(checkpoint->tensors.folder(), std::move(engine));
      })) {}

Model::Model(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}

State Model::begin(std::uint64_t seed) const {
  auto at = eval::begin(*impl_->engine);
  at.seed = seed;
  return Access::make_state(impl_, std::move(at));
}

State Model::load(const std::filesystem::path& file) const {
  return guarded_files([&] { return Access::make_state(impl_, impl_->engine->load(file)); });
}

void Model::read(std::span<const Reading> batch) const {
  guarded([&] {
    thread_local std::vector<eval::Prompt> prompts;  // a step allocates nothing
    prompts.clear();
    for (const auto& [state, ids] : batch) {
      base::require(state != nullptr && Access::of(*state).model == impl_,
                    "read: every state must be of this model, got {}",
                    state == nullptr ? "none" : "one of another");
      prompts.push_back({&Access::of(*state).at, ids});
    }
    eval::read_together(*impl_->engine, prompts);
  });
}

std::optional<Tokenizer> Model::tokenizer() const {
  return guarded_files([&]() -> std::optional<Tokenizer> {
    auto tokenizer = data::tokenizer_of(impl_->folder, vocab_size());
    if (tokenizer == nullptr) return {};
    base::require(tokenizer->vocab_size() <= vocab_size(),
                  "the model's tokenizer: vocabulary must be at most the model's = {}, got {}",
                  vocab_size(), tokenizer->vocab_size());
    return Access::make_tokenizer(std::move(tokenizer));
  });
}

std::vector<std::int64_t> Model::encode_prompt(const Tokenizer& tokenizer,
                                               std::string_view text) const {
  return guarded([&] {
    return eval::prompt_ids(impl_->engine->config(), Access::of(tokenizer), text, "prompt");
  });
}

std::int64_t Model::vocab_size() const noexcept { return impl_->engine->config().vocab_size; }
std::optional<std::int64_t> Model::bos_token() const noexcept {
  return token(impl_->engine->config().bos_token_id);
}
std::optional<std::int64_t> Model::eos_token() const noexcept {
  return token(impl_->engine->config().eos_token_id);
}
std::int64_t Model::window() const noexcept { return impl_->engine->config().window; }
std::int64_t Model::fading_tokens() const noexcept { return impl_->engine->config().fading_tokens; }
std::int64_t Model::eidetic_tokens() const noexcept {
  return impl_->engine->config().eidetic_tokens;
}
WeightType Model::weight_type() const noexcept {
  return impl_->engine->model().type() == infer::WeightType::bf16 ? WeightType::bf16
                                                                  : WeightType::f32;
}
int Model::threads() const noexcept { return impl_->engine->model().pool().threads(); }

}  // namespace bmojo::v0
