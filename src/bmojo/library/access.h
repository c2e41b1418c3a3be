#pragma once

#include <bmojo/bmojo.h>

#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "bmojo/base/error.h"
#include "bmojo/data/tokenizer.h"
#include "bmojo/eval/language_model.h"
#include "bmojo/infer/language_model.h"

// What lies behind the classes of the public header. In this room v0::Model is the public class;
// base::Error, base::RunError and data::Tokenizer are the inner ones.

namespace bmojo::v0 {

struct [[gnu::visibility("hidden")]] Model::Impl {
  std::filesystem::path folder;
  std::unique_ptr<const infer::NativeLanguageModel> engine;
};

struct [[gnu::visibility("hidden")]] State::Impl {
  std::shared_ptr<const Model::Impl> model;
  eval::Continuation at;
};

struct [[gnu::visibility("hidden")]] Tokenizer::Impl {
  std::unique_ptr<const data::Tokenizer> tokenizer;
};

struct [[gnu::visibility("hidden")]] Access {
  static State::Impl& of(State& state) { return *state.impl_; }
  static const State::Impl& of(const State& state) { return *state.impl_; }
  static const data::Tokenizer& of(const Tokenizer& tokenizer) {
    return *tokenizer.impl_->tokenizer;
  }
  static State make_state(std::shared_ptr<const Model::Impl> model, eval::Continuation at) {
    return State(std::make_unique<State::Impl>(std::move(model), std::move(at)));
  }
  static Model make_model(std::shared_ptr<const Model::Impl> model) {
    return Model(std::move(model));
  }
  static Tokenizer make_tokenizer(std::unique_ptr<const data::Tokenizer> tokenizer) {
    return Tokenizer(std::make_shared<const Tokenizer::Impl>(std::move(tokenizer)));
  }
};

}  // namespace bmojo::v0

namespace bmojo::library {

// call(), whose exceptions become the public ones.
template <typename Call>
auto guarded(const Call& call) {
  try {
    return call();
  } catch (const base::Error& mistake) {
    throw v0::InputError(mistake.what());
  } catch (const base::RunError& failure) {
    throw v0::RunError(failure.what());
  }
}

// The same where files are used or threads are started.
template <typename Call>
auto guarded_files(const Call& call) {
  try {
    return guarded(call);
  } catch (const std::filesystem::filesystem_error& mistake) {
    throw v0::InputError(fmt::format("{}: must be a usable path, got {}", mistake.path1().string(),
                                     mistake.code().message()));
  } catch (const std::system_error& failure) {
    throw v0::RunError(failure.what());
  }
}

}  // namespace bmojo::library
