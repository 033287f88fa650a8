//! PyTorch tensors, found through `sys.modules` and never imported.

use crate::dlpack::{self, ImportedView};
use crate::dlpack_exchange::Exchange;
use crate::tensor::Tensor;
use pteron_core::DType;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// What we use of PyTorch, once somebody has imported it.
pub struct Torch {
    tensor: Py<PyType>,
    /// Types whose objects are ordinary tensors, and the functions that read those.
    ordinary: Vec<Py<PyAny>>,
    exchange: Option<Exchange>,
    strided: Py<PyAny>,
    from_dlpack: Py<PyAny>,
    dtypes: Vec<(Py<PyAny>, DType)>,
}

impl Torch {
    /// PyTorch, if it is imported (and done importing).
    pub fn loaded(py: Python<'_>) -> Option<&'static Torch> {
        static TORCH: PyOnceLock<Torch> = PyOnceLock::new();
        if let Some(torch) = TORCH.get(py) {
            return Some(torch);
        }
        let torch = Self::find(py)?;
        Some(TORCH.get_or_init(py, || torch))
    }

    fn find(py: Python<'_>) -> Option<Torch> {
        static MODULES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let modules = MODULES
            .get_or_try_init(py, || py.import("sys")?.getattr("modules").map(Bound::unbind))
            .ok()?
            .bind(py)
            .cast::<pyo3::types::PyDict>()
            .ok()?;
        let torch = modules.get_item(pyo3::intern!(py, "torch")).ok()??;
        let dtypes = DType::ALL
            .into_iter()
            .filter_map(|d| Some((torch.getattr(d.name()).ok()?.unbind(), d)))
            .collect();
        let tensor = torch.getattr("Tensor").ok()?;
        let parameter = torch.getattr("nn").and_then(|nn| nn.getattr("Parameter")).ok();
        Some(Torch {
            exchange: Exchange::of(&tensor),
            ordinary: [Some(tensor.clone()), parameter].into_iter().flatten().map(Bound::unbind).collect(),
            tensor: tensor.cast_into().ok()?.unbind(),
            strided: torch.getattr("strided").ok()?.unbind(),
            from_dlpack: torch
                .getattr("utils")
                .ok()?
                .getattr("dlpack")
                .ok()?
                .getattr("from_dlpack")
                .ok()?
                .unbind(),
            dtypes,
        })
    }

    /// Is `object` a torch tensor (or parameter)?
    pub fn is_tensor(&self, object: &Bound<'_, PyAny>) -> bool {
        object.is_instance(self.tensor.bind(object.py())).unwrap_or(false)
    }

    /// Memory of an ordinary tensor, in one call; `None` where it has to be asked about one thing after the other.
    /// Whether elements are to be negated or conjugated is not looked at.
    pub fn view(&self, object: &Bound<'_, PyAny>) -> Option<ImportedView> {
        let exchange = self.exchange?;
        let ty = object.get_type();
        // Subclasses may stand for anything, such as a tensor without memory.
        self.ordinary.iter().any(|t| ty.is(t)).then(|| exchange.view(object)).flatten()
    }

    /// Is `layout` the one of ordinary dense tensors?
    pub fn is_strided(&self, layout: &Bound<'_, PyAny>) -> bool {
        layout.is(&self.strided)
    }

    /// Our dtype for a `torch.dtype`; `None` for quantised and other special ones.
    pub fn dtype(&self, dtype: &Bound<'_, PyAny>) -> Option<DType> {
        self.dtypes.iter().find(|(object, _)| dtype.is(object)).map(|(_, d)| *d)
    }

    /// A torch tensor over `tensor`'s memory.
    pub fn tensor_of<'py>(&self, py: Python<'py>, tensor: &Tensor) -> PyResult<Bound<'py, PyAny>> {
        if let Some(made) = self.exchange.and_then(|exchange| exchange.object_of(py, tensor)) {
            return made;
        }
        let capsule = dlpack::export(py, tensor, true, false, false)?;
        self.from_dlpack.bind(py).call1((capsule,))
    }
}
