#include "bmojo/eval/language_model.h"

#include "bmojo/base/error.h"

namespace bmojo::eval {

void LanguageModel::save(const Continuation&, const std::filesystem::path&) const {
  base::fail("--state-out: needs --engine native, got torch");
}

Continuation LanguageModel::load(const std::filesystem::path&) const {
  base::fail("--state-in: needs --engine native, got torch");
}

}  // namespace bmojo::eval
