#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "bmojo/model/gguf_header.h"

namespace bmojo::model {

// Typed access to the metadata of a GGUF file. Errors name the key.
class GgufFields {
 public:
  GgufFields(const GgufHeader& header, std::string subject)
      : header_(header), subject_(std::move(subject)) {}

  const std::string& subject() const { return subject_; }
  bool has(std::string_view key) const { return find(key) != nullptr; }

  // Nothing where the key is absent; Error where its value is of another kind.
  std::optional<std::string_view> text(std::string_view key) const;
  std::optional<bool> flag(std::string_view key) const;
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  const GgufValue* array(std::string_view key, GgufKind item) const;

  // A width, a depth or a count: from 1 to 2^31, which keeps products of two within 64 bits. Error
  // where it is absent without a fallback.
  int64_t size(std::string_view key, std::optional<int64_t> fallback = {}) const;
  double positive(std::string_view key, std::optional<double> fallback = {}) const;

  [[noreturn]] void refuse(std::string_view key, std::string_view requirement) const;
  // Every key that begins so must have been asked for: one that bmojo does not know may change what
  // the model computes.
  void refuse_unknown(std::string_view prefix) const;

 private:
  const GgufValue* find(std::string_view key) const;

  const GgufHeader& header_;
  std::string subject_;
  mutable std::set<std::string, std::less<>> asked_;
};

}  // namespace bmojo::model
