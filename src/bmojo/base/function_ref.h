#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace bmojo::base {

// Refers to something that can be called, and owns nothing: two pointers, no allocation. As an
// argument it outlives every temporary it is made from; it is never kept beyond the call.
template <typename Signature>
class FunctionRef;

template <typename Result, typename... Args>
class FunctionRef<Result(Args...)> {
 public:
  template <typename F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> &&
             std::is_invocable_r_v<Result, F&, Args...>)
  FunctionRef(F&& callee) {  // NOLINT: as std::function, a lambda is one
    using Callee = std::remove_reference_t<F>;
    if constexpr (std::is_function_v<Callee>) {
      callee_ = reinterpret_cast<void*>(&callee);
      call_ = [](void* to, Args... args) -> Result {
        return reinterpret_cast<Callee*>(to)(std::forward<Args>(args)...);
      };
    } else {
      callee_ = const_cast<void*>(static_cast<const void*>(std::addressof(callee)));
      call_ = [](void* to, Args... args) -> Result {
        return (*static_cast<Callee*>(to))(std::forward<Args>(args)...);
      };
    }
  }

  Result operator()(Args... args) const { return call_(callee_, std::forward<Args>(args)...); }

 private:
  void* callee_;
  Result (*call_)(void*, Args...);
};

}  // namespace bmojo::base
