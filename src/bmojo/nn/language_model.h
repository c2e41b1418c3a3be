#pragma once

#include <memory>

#include "bmojo/eval/language_model.h"
#include "bmojo/nn/model.h"

namespace bmojo::nn {

// The torch model behind the interface that every engine has; fp32 on the CPU, without gradients.
// Sequences that began together and read equally many tokens are one batch, others are read one
// after the other.
std::unique_ptr<eval::LanguageModel> make_language_model(Model model);

}  // namespace bmojo::nn
