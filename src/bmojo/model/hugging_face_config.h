#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "bmojo/base/json.h"
#include "bmojo/model/config.h"
#include "bmojo/model/dtype.h"

namespace bmojo::model {

// The models of transformers that a Config can be exactly.
enum class Family { mamba, mistral, llama };

std::string_view model_type_of(Family family);

struct ForeignModel {
  Family family;
  Config config;
};

// Reads transformers' config.json. A field that changes the mathematics into something a Config
// cannot express is refused by name; an absent one takes transformers' default; others are ignored.
ForeignModel from_hugging_face(const base::Json& json, std::string_view subject);

// The family this config is exactly, if any: mamba for `ssm` layers alone, mistral for `attention`
// layers with rotary positions, each followed by an MLP. A llama is such a mistral.
std::optional<Family> family_of(const Config& config);
base::Json to_hugging_face(const Config& config, Family family, Dtype dtype);

// transformers' name of a native tensor.
std::string hugging_face_name(Family family, std::string_view native);

}  // namespace bmojo::model
