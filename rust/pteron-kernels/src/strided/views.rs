//! View arithmetic: which elements of a tensor permute, expand, slice and their kin show, as a first element and
//! strides. Every operator and the optimiser of constants use these functions, so that a refusal has one text.

use super::copy::StridedRegion;
use crate::shape::{dim_set, slice_range, wrap_dim, wrap_index};
use pteron_core::{DimOrder, Dims, Error, IntListView, MAX_RANK, Result, TensorView};

/// Elements of a tensor in another layout: a shape, and where in the tensor its elements lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// Extents.
    pub shape: Dims,
    /// First element and strides.
    pub region: StridedRegion,
}

impl View {
    /// All of a tensor.
    pub fn of(x: &TensorView<'_>) -> View {
        View::new(0, *x.shape(), x.strides())
    }

    /// The view of `shape` with these strides whose first element is the one at `offset`.
    pub fn new(offset: usize, shape: Dims, strides: &[usize]) -> View {
        View { shape, region: StridedRegion { offset: offset as isize, ..StridedRegion::of(strides) } }
    }

    /// A row-major view.
    pub fn contiguous(shape: Dims) -> View {
        View::new(0, shape, &DimOrder::contiguous(shape.len()).strides(&shape))
    }

    /// Strides where none is negative.
    pub fn strides(&self) -> Option<Dims> {
        let mut out = Dims::EMPTY;
        for stride in self.region.strides.get(..self.shape.len())? {
            out.push(usize::try_from(*stride).ok()?).ok()?;
        }
        Some(out)
    }

    fn swap(&mut self, a: usize, b: usize) {
        if a < self.shape.len() && b < self.shape.len() {
            self.shape.swap(a, b);
            self.region.strides.swap(a, b);
        }
    }

    /// Removes dimension `d`.
    fn remove(&mut self, d: usize) -> Result<()> {
        self.shape.remove(d)?;
        self.region.strides[d..].rotate_left(1);
        self.region.strides[MAX_RANK - 1] = 0;
        Ok(())
    }

    /// Appends a dimension.
    fn push(&mut self, extent: usize, stride: isize) -> Result<()> {
        self.shape.push(extent)?;
        self.region.strides[self.shape.len() - 1] = stride;
        Ok(())
    }

    /// Keeps `length` elements of dimension `d`, `step` apart, from `start` on.
    fn keep(&mut self, d: usize, start: usize, length: usize, step: usize) {
        self.region.offset += start as isize * self.region.strides[d];
        if length > 1 {
            self.region.strides[d] *= step as isize;
        }
        self.shape[d] = length;
    }

    /// Dimensions in the order `order`, which names each once; negative ones count from the end.
    pub fn permute(self, order: impl IntoIterator<Item = Result<i64>>) -> Result<View> {
        let mut out = View {
            shape: Dims::EMPTY,
            region: StridedRegion { offset: self.region.offset, ..StridedRegion::of(&[]) },
        };
        let (mut named, mut seen) = (0, 0u32);
        for dim in order {
            let d = wrap_dim(dim?, self.shape.len())?;
            if seen & 1 << d != 0 {
                return Err(Error::kernel("permute names a dimension twice").got(d.to_string()));
            }
            seen |= 1 << d;
            named += 1;
            if let Some(extent) = self.shape.get(d) {
                out.push(*extent, self.region.strides[d])?;
            }
        }
        if named != self.shape.len() {
            return Err(Error::kernel("permute does not name every dimension")
                .expected(format!("{} dimensions", self.shape.len()))
                .got(named.to_string()));
        }
        Ok(out)
    }

    /// Two dimensions exchanged; a tensor without dimensions counts as one with a single one, as PyTorch has it.
    pub fn transpose(mut self, a: i64, b: i64) -> Result<View> {
        let rank = self.shape.len();
        self.swap(wrap_dim(a, rank)?, wrap_dim(b, rank)?);
        Ok(self)
    }

    /// Rows and columns of a matrix exchanged; vectors and scalars as they are.
    pub fn transpose_matrix(mut self) -> Result<View> {
        if self.shape.len() > 2 {
            return Err(
                Error::kernel("t expects at most two dimensions").got(format!("rank {}", self.shape.len()))
            );
        }
        self.swap(0, 1);
        Ok(self)
    }

    /// Extents of one repeated, and dimensions added in front; -1 keeps an extent.
    pub fn expand(self, size: &IntListView<'_>) -> Result<View> {
        let refuse = || {
            Error::kernel("expand cannot make this shape")
                .expected(format!("extents of {}, or any where it has 1", self.shape))
        };
        let lead = size.len().checked_sub(self.shape.len()).ok_or_else(refuse)?;
        let mut out =
            View { shape: Dims::EMPTY, region: StridedRegion { strides: [0; MAX_RANK], ..self.region } };
        for (d, extent) in size.iter().enumerate() {
            let extent = extent?;
            let own = d.checked_sub(lead).map(|d| (self.shape[d], self.region.strides[d]));
            let (extent, stride) = match (own, usize::try_from(extent)) {
                (Some(own), Err(_)) if extent == -1 => own,
                (Some(own), Ok(extent)) if extent == own.0 => own,
                (Some((1, _)) | None, Ok(extent)) => (extent, 0),
                _ => return Err(refuse().got(format!("{extent} at dimension {d}"))),
            };
            out.push(extent, stride)?;
        }
        Ok(out)
    }

    /// A dimension of extent one before `dim`.
    pub fn unsqueeze(mut self, dim: i64) -> Result<View> {
        let d = wrap_dim(dim, self.shape.len() + 1)?;
        self.shape.insert(d, 1)?;
        self.region.strides[d..].rotate_right(1);
        self.region.strides[d] = 1;
        Ok(self)
    }

    /// Without the dimensions of `set` (bit `d`) that have extent one.
    pub fn squeeze(mut self, set: u32) -> Result<View> {
        for d in (0..self.shape.len()).rev() {
            if set & 1 << d != 0 && self.shape[d] == 1 {
                self.remove(d)?;
            }
        }
        Ok(self)
    }

    /// An error for a tensor without dimensions, else dimension `dim`.
    fn dim_to(&self, dim: i64, what: &str) -> Result<usize> {
        if self.shape.is_empty() {
            return Err(
                Error::kernel(format!("a tensor without dimensions cannot be {what}")).argument("self")
            );
        }
        wrap_dim(dim, self.shape.len())
    }

    /// One index of a dimension.
    pub fn select(mut self, dim: i64, index: i64) -> Result<View> {
        let d = self.dim_to(dim, "selected from")?;
        let index = wrap_index(index, self.shape[d]).map_err(|e| e.argument("index"))?;
        self.keep(d, index, 1, 1);
        self.remove(d)?;
        Ok(self)
    }

    /// Every `step`-th index of a dimension from `start` to before `end`, clamped as PyTorch does.
    pub fn slice(mut self, dim: i64, start: Option<i64>, end: Option<i64>, step: i64) -> Result<View> {
        let d = self.dim_to(dim, "sliced")?;
        let (start, length) = slice_range(start, end, step, self.shape[d])?;
        self.keep(d, start, length, step as usize);
        Ok(self)
    }

    /// `length` indices of a dimension from `start` on, all of which must be there.
    pub fn narrow(mut self, dim: i64, start: i64, length: i64) -> Result<View> {
        let d = self.dim_to(dim, "narrowed")?;
        let extent = self.shape[d] as i64;
        let start = if start < 0 { start.saturating_add(extent) } else { start };
        if length < 0 || start < 0 || start > extent || length > extent - start {
            return Err(Error::kernel("the range leaves the dimension")
                .expected(format!("within 0..{extent}"))
                .got(format!("start {start}, length {length}")));
        }
        self.keep(d, start as usize, length as usize, 1);
        Ok(self)
    }

    /// The listed dimensions backwards.
    pub fn flip(mut self, dims: &IntListView<'_>) -> Result<View> {
        let set = dim_set(dims, self.shape.len())?;
        for d in 0..self.shape.len() {
            if set & 1 << d != 0 && self.shape[d] > 0 {
                self.region.offset += (self.shape[d] as isize - 1) * self.region.strides[d];
                self.region.strides[d] = -self.region.strides[d];
            }
        }
        Ok(self)
    }

    /// Windows of `size` indices of a dimension, `step` apart; what a window shows is a new last dimension.
    pub fn unfold(mut self, dim: i64, size: i64, step: i64) -> Result<View> {
        let d = wrap_dim(dim, self.shape.len())?;
        let extent = self.shape.get(d).copied().unwrap_or(1) as i64;
        if size < 0 || size > extent || step <= 0 {
            return Err(Error::kernel("windows do not fit the dimension")
                .expected(format!("0 ≤ size ≤ {extent} and step > 0"))
                .got(format!("size {size}, step {step}")));
        }
        let mut stride = 1;
        if !self.shape.is_empty() {
            stride = self.region.strides[d];
            self.keep(d, 0, ((extent - size) / step + 1) as usize, step as usize);
        }
        self.push(size as usize, stride)?;
        Ok(self)
    }

    /// The diagonal of two dimensions that begins `offset` columns from the main one, as a new last dimension.
    pub fn diagonal(mut self, offset: i64, first: i64, second: i64) -> Result<View> {
        let rank = self.shape.len();
        let (a, b) = (wrap_dim(first, rank)?, wrap_dim(second, rank)?);
        if a == b || rank < 2 {
            return Err(
                Error::kernel("a diagonal needs two different dimensions").got(format!("{a} and {b}"))
            );
        }
        let (rows, columns) = (self.shape[a] as i64, self.shape[b] as i64);
        let (down, right) = (self.region.strides[a], self.region.strides[b]);
        let offset = offset.clamp(-rows, columns);
        let length =
            if offset >= 0 { rows.min(columns - offset) } else { (rows + offset).min(columns) }.max(0);
        if length > 0 {
            let stride = if offset >= 0 { right } else { down };
            self.region.offset += offset.unsigned_abs() as isize * stride;
        }
        self.remove(a.max(b))?;
        self.remove(a.min(b))?;
        self.push(length as usize, down + right)?;
        Ok(self)
    }

    /// A view of a tensor of `numel` elements by extents and strides that the caller chooses.
    pub fn strided(numel: usize, shape: Dims, strides: &IntListView<'_>, offset: i64) -> Result<View> {
        if strides.len() != shape.len() {
            return Err(Error::kernel("size and stride must have the same length").argument("stride"));
        }
        let mut region = StridedRegion { offset: offset as isize, strides: [0; MAX_RANK] };
        let mut last = usize::try_from(offset).ok();
        for (d, stride) in strides.iter().enumerate() {
            let stride = usize::try_from(stride?)
                .map_err(|_| Error::kernel("strides must not be negative").argument("stride"))?;
            region.strides[d] = stride as isize;
            last = shape[d].saturating_sub(1).checked_mul(stride).and_then(|reach| last?.checked_add(reach));
        }
        if !shape.contains(&0) && last.is_none_or(|last| last >= numel) {
            return Err(Error::kernel("the strided view leaves the tensor")
                .expected(format!("elements within 0..{numel}")));
        }
        Ok(View { shape, region })
    }

    /// The same elements in row-major order under other extents; `None` when that needs a copy. Follows PyTorch's
    /// rule for `Tensor.view`: each group of old dimensions that new ones split must be contiguous among themselves.
    pub fn reshape(&self, shape: &Dims) -> Option<View> {
        let numel = shape.numel().ok()?;
        if numel != self.shape.numel().ok()? {
            return None;
        }
        let mut out = View { shape: *shape, region: StridedRegion { strides: [0; MAX_RANK], ..self.region } };
        if numel == 0 {
            return Some(out);
        }
        // Old dimensions of extent 1 carry no order.
        let old = self.shape.iter().copied().zip(self.region.strides).filter(|(n, _)| *n != 1);
        let mut old = old.collect::<Vec<_>>().into_iter().rev().peekable();
        // The current group: elements still to hand out and the stride of the next one.
        let (mut left, mut stride) = (1usize, 1isize);
        for d in (0..shape.len()).rev() {
            let n = *shape.get(d)?;
            if n != 1 && left == 1 {
                let innermost;
                (left, innermost) = old.next()?;
                stride = innermost;
                while let Some((next, next_stride)) = old.peek().copied() {
                    if next_stride != innermost.checked_mul(isize::try_from(left).ok()?)? {
                        break;
                    }
                    left = left.checked_mul(next)?;
                    old.next();
                }
            }
            out.region.strides[d] = stride;
            if n != 1 {
                if left.checked_rem(n)? != 0 {
                    return None;
                }
                left = left.checked_div(n)?;
                stride = stride.checked_mul(isize::try_from(n).ok()?)?;
            }
        }
        (left == 1 && old.next().is_none()).then_some(out)
    }
}

/// The extents that `size` asks of a tensor of `numel` elements; one of them may be -1.
pub fn view_shape(numel: usize, size: &IntListView<'_>) -> Result<Dims> {
    let refuse = || Error::kernel("view cannot make this shape").expected(format!("{numel} elements"));
    let (mut shape, mut inferred, mut known) = (Dims::EMPTY, None, 1usize);
    for (d, extent) in size.iter().enumerate() {
        let extent = extent?;
        if extent == -1 && inferred.is_none() {
            inferred = Some(d);
            shape.push(1)?;
            continue;
        }
        let extent =
            usize::try_from(extent).map_err(|_| refuse().got(format!("{extent} at dimension {d}")))?;
        known = known.checked_mul(extent).ok_or_else(|| refuse().got("an overflowing product"))?;
        shape.push(extent)?;
    }
    if let Some(d) = inferred {
        // Of no elements -1 could stand for anything.
        let extent = numel.checked_div(known);
        shape[d] = extent.ok_or_else(|| refuse().got(format!("-1 beside an empty dimension in {shape}")))?;
    }
    if shape.numel()? != numel {
        return Err(refuse().got(shape.to_string()));
    }
    Ok(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dense(shape: &[usize]) -> View {
        View::contiguous(dims(shape))
    }

    fn dims(d: &[usize]) -> Dims {
        Dims::new(d).unwrap()
    }

    fn permute(view: View, order: &[i64]) -> Result<View> {
        view.permute(order.iter().map(|d| Ok(*d)))
    }

    #[test]
    fn permute_and_back() {
        let v = dense(&[2, 3, 4]);
        let p = permute(v, &[2, 0, -2]).unwrap();
        assert_eq!((&*p.shape, &*p.strides().unwrap()), (&[4, 2, 3][..], &[1, 12, 4][..]));
        assert_eq!(permute(p, &[1, 2, 0]).unwrap(), v);
        assert!(permute(v, &[0, 0, 1]).is_err());
        assert!(permute(v, &[0, 1]).is_err());
        assert!(permute(dense(&[]), &[0]).is_err());
        assert!(permute(dense(&[]), &[]).is_ok());
    }

    #[test]
    fn reshape_splits_and_joins_where_no_copy_is_needed() {
        let v = dense(&[6, 4]);
        assert_eq!(v.reshape(&dims(&[2, 3, 4])).unwrap(), dense(&[2, 3, 4]));
        assert_eq!(v.reshape(&dims(&[24])).unwrap(), dense(&[24]));
        assert_eq!(&*v.reshape(&dims(&[1, 6, 1, 4])).unwrap().shape, &[1, 6, 1, 4]);
        let t = permute(v, &[1, 0]).unwrap();
        assert!(t.reshape(&dims(&[24])).is_none());
        assert_eq!(&*t.reshape(&dims(&[2, 2, 6])).unwrap().strides().unwrap(), &[2, 1, 4]);
        assert!(v.reshape(&dims(&[5, 5])).is_none());
    }

    #[test]
    fn select_and_unsqueeze() {
        let v = dense(&[2, 3]);
        let s = v.select(0, -1).unwrap();
        assert_eq!((s.region.offset, &*s.shape), (3, &[3][..]));
        assert!(v.select(0, 2).is_err());
        assert!(dense(&[]).select(0, 0).is_err());
        assert_eq!(&*v.unsqueeze(-1).unwrap().shape, &[2, 3, 1]);
        assert_eq!(v.unsqueeze(-1).unwrap().squeeze(u32::MAX).unwrap(), v);
    }
}
