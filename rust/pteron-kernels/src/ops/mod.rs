//! Operator families, one per file.

pub(crate) mod complex_elementwise;
pub(crate) mod complex_functions;
pub(crate) mod complex_scans;
pub(crate) mod complex_sums;
pub(crate) mod index_items;
pub(crate) mod matrix_batch;
pub(crate) mod quantized_layout;
pub(crate) mod volume;

macro_rules! families {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        $( $(#[$doc])* pub mod $name; )*
        /// The tables of all families.
        pub(crate) static TABLES: &[&[pteron_core::StaticKernel]] = &[$($name::KERNELS),*];
    };
}

families! {
    unary_float, unary_number, activation, arithmetic, division, power, comparison, logical, bitwise, clamp,
    masked_choice, copy, scalar_prim, tensor_prim, layout,
    joining, sums, extremes, softmax, normalization, matrix, convolution, creation, indexing, scattering,
    advanced_indexing, pooling, adaptive_pooling,
    padding, resampling, antialiasing, sorting, data_dependent, channels, distances, grid_sampling,
    special_functions, number_pairs, order_statistics, searching, counting, running_results,
    flat_positions, complex_parts, batch_norm_training,
    pooling_backward, convolution_backward, norm_backward, embedding_backward, patches,
    quantize, dequantize, quantization_parameters, quantized_embedding, quantized_arithmetic,
    exponents,
    lu, triangular, cholesky, householder, symmetric_eigen, singular_values, matrix_exponential,
    random, random_choice,
    complex_pairs, fourier_operators, embedding_bag, bessel_functions, zeta_functions,
    incomplete_gamma, random_counts, unique, index_reduce,
}
