#pragma once

#include <fmt/format.h>
#include <xxhash.h>

#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>

namespace bmojo::base {

// The XXH3 128-bit hash of bytes that come piece by piece, as "xxh3-128:" and 32 hexadecimal
// digits. It finds damage; it is no protection against intent.
class Digest {
 public:
  static constexpr size_t kTextSize = 9 + 2 * sizeof(XXH128_canonical_t);

  Digest() : state_(XXH3_createState()) {
    if (!state_) throw std::bad_alloc();
    XXH3_128bits_reset(state_.get());
  }

  void update(std::span<const std::byte> bytes) {
    XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
  }
  void update(std::string_view text) { update(std::as_bytes(std::span(text.data(), text.size()))); }

  std::string text() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
    return fmt::format("xxh3-128:{:02x}", fmt::join(canonical.digest, ""));
  }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

// Of a text that is there as a whole.
inline std::string digest_of_text(std::string_view text) {
  Digest digest;
  digest.update(text);
  return digest.text();
}

}  // namespace bmojo::base
