"""Where backends say which recipes they have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pteron.exir.recipes.recipe_parts import RecipeType

if TYPE_CHECKING:
    from pteron.exir.recipes.export_recipe import ExportRecipe


class BackendRecipeProvider(ABC):
    """Makes the recipes of one backend."""

    @property
    @abstractmethod
    def backend_name(self) -> str:
        """Name of the backend, such as "xnnpack"."""

    @abstractmethod
    def get_supported_recipes(self) -> Sequence[RecipeType]:
        """The recipes that `create_recipe` knows."""

    @abstractmethod
    def create_recipe(self, recipe_type: RecipeType, **kwargs: Any) -> ExportRecipe | None:
        """A recipe; None where the backend has none of this type. `kwargs` are the recipe's own settings."""

    def supports_recipe(self, recipe_type: RecipeType) -> bool:
        """Whether the backend has a recipe of this type."""
        return recipe_type in self.get_supported_recipes()


class RecipeRegistry:
    """The providers by backend name. There is one registry: every call of the class gives it."""

    _instance: ClassVar[RecipeRegistry | None] = None
    _initialized: ClassVar[bool] = False

    def __new__(cls) -> RecipeRegistry:
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __init__(self) -> None:
        if not RecipeRegistry._initialized:
            self._providers: dict[str, BackendRecipeProvider] = {}
            RecipeRegistry._initialized = True

    def register_backend_recipe_provider(self, provider: BackendRecipeProvider) -> None:
        """Add a provider, in place of an earlier one of the same backend."""
        self._providers[provider.backend_name] = provider

    def create_recipe(self, recipe_type: RecipeType, backend: str, **kwargs: Any) -> ExportRecipe | None:
        """The recipe of a backend, None where it has none of this type. ValueError for an unknown backend."""
        return self._provider(backend).create_recipe(recipe_type, **kwargs)

    def get_supported_recipes(self, backend: str) -> Sequence[RecipeType]:
        """The recipes that a backend has. ValueError for an unknown backend."""
        return self._provider(backend).get_supported_recipes()

    def list_backends(self) -> list[str]:
        """Names of the backends that have a provider."""
        return list(self._providers)

    def _provider(self, backend: str) -> BackendRecipeProvider:
        if backend not in self._providers:
            raise ValueError(
                f"Backend '{backend}' not available. Available: {self.list_backends()}; importing the "
                "package of "
                "a backend registers its recipes"
            )
        return self._providers[backend]


recipe_registry = RecipeRegistry()
