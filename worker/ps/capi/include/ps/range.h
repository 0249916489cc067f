/* A range of keys. */
#pragma once

#include "ps/base.h"

namespace ps {

/* Keys from begin to before end. The end of the last server's range is kMaxKey, which belongs to it too. */
class Range {
 public:
  Range() = default;
  Range(std::uint64_t begin, std::uint64_t end) : begin_(begin), end_(end) {}

  std::uint64_t begin() const { return begin_; }
  std::uint64_t end() const { return end_; }
  std::uint64_t size() const { return end_ - begin_; }

 private:
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
};

}  // namespace ps
