#pragma once

#include <cstdint>
#include <memory>

#include "bmojo/cli/engine.h"
#include "bmojo/infer/language_model.h"

namespace bmojo::cli {

// open_model() for verbs that `bmojo` alone has.
std::unique_ptr<infer::NativeLanguageModel> open_native_model(const EngineChoice& choice,
                                                              int64_t threads);

}  // namespace bmojo::cli
