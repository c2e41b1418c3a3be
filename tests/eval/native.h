#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bmojo/infer/language_model.h"
#include "tests/infer/support.h"

namespace bmojo::test {

inline std::unique_ptr<eval::LanguageModel> language_model(const Draw& draw, int threads) {
  auto model = std::make_unique<infer::Model>(model::TensorFolder(draw.folder.path()), draw.config,
                                              std::nullopt, threads);
  return std::make_unique<infer::NativeLanguageModel>(std::move(model),
                                                      [] { return std::string(); });
}

}  // namespace bmojo::test
